// Package seed makes a member's data directory before its first start.
package seed
