// Package deploy holds what people deploy etcdinit with; its tests hold the
// manifests, the chart, the units and the pages against the command line.
package deploy
