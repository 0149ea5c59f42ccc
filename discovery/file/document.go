package file

import (
	"errors"

	"github.com/etcdinit/etcdinit/discovery"
)

// Parse reads a peers document, YAML or JSON, for a source that does not get
// it from a file. unfinished says of an error that the document names nobody
// yet, or ends too early: another try may find it whole.
func Parse(text []byte) (peers []discovery.Peer, unfinished bool, err error) {
	peers, err = parse(text)
	var half *halfError
	return peers, errors.As(err, &half), err
}
