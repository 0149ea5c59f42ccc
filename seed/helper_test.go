package seed_test

import (
	"errors"

	"github.com/etcdinit/etcdinit/seed"
)

// kindOf is the kind of a seed error, 0 where it is none.
func kindOf(err error) seed.ErrorKind {
	if e, ok := errors.AsType[*seed.Error](err); ok {
		return e.Kind
	}
	return 0
}
