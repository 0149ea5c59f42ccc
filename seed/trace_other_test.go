//go:build !linux || !amd64

package seed_test

import "errors"

func stopAtCalls() error { return errors.ErrUnsupported }
