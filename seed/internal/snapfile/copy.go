// Package snapfile reads the snapshot of an etcd, and writes the file beside a database
// that tells etcd where its log goes on.
package snapfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// A snapshot, as Maintenance.Snapshot streams it and `etcdctl snapshot save` writes it,
// is the database file with the SHA-256 of all its bytes behind it. The pages of the
// database are a multiple of 512 bytes, so the length tells whether a digest is there.
const (
	digestSize = sha256.Size
	sector     = 512

	chunk = 1 << 20
	// flushEvery is how many bytes are written before the system is asked to begin
	// writing them out: what is left for the last sync is little then.
	flushEvery = 8 << 20

	magicAt = 16 // of a bbolt database: behind the header of its first page
	magic   = 0xED0CDAED
)

// Error says why what was read is no snapshot that can be used.
type Error struct{ Msg string }

func (e *Error) Error() string { return e.Msg }

func unusable(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Sum is what was read.
type Sum struct {
	Size   int64  // of the database in bytes, without its digest
	SHA256 string // of the database, in hexadecimal
	// File is the SHA-256 of all that was read, as sha256sum prints it.
	File string
	// Verified: the digest behind the database was there, and is its own.
	Verified bool
}

// Copy writes the database of the snapshot that r streams to w, and holds the digest at
// its end against what was read. Without digest, or with a wrong one, it is an *Error,
// unless unchecked is set. It needs a few MiB of memory, whatever the size. progress,
// where it is not nil, is called with the bytes that were read so far.
func Copy(ctx context.Context, w io.Writer, r io.Reader, unchecked bool, progress func(int64)) (Sum, error) {
	c := copier{w: w, database: sha256.New()}
	buf := make([]byte, chunk)
	for {
		if ctx.Err() != nil {
			return Sum{}, context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if werr := c.take(buf[:n]); werr != nil {
				return Sum{}, werr
			}
			if progress != nil {
				progress(c.read)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return c.end(unchecked)
		}
		if err != nil {
			return Sum{}, err
		}
	}
}

type copier struct {
	w              io.Writer
	database       hash.Hash
	tail           []byte // the last bytes: they may be the digest
	read           int64
	written, asked int64
}

// take writes all but the last 32 of the bytes that came so far.
func (c *copier) take(b []byte) error {
	if c.read == 0 {
		if err := looksRight(b); err != nil {
			return err
		}
	}
	c.read += int64(len(b))
	if len(b) >= digestSize {
		if err := c.put(c.tail); err != nil {
			return err
		}
		c.tail = append(c.tail[:0], b[len(b)-digestSize:]...)
		return c.put(b[:len(b)-digestSize])
	}
	c.tail = append(c.tail, b...)
	n := max(len(c.tail)-digestSize, 0)
	err := c.put(c.tail[:n])
	c.tail = append(c.tail[:0], c.tail[n:]...)
	return err
}

func (c *copier) put(b []byte) error {
	_, _ = c.database.Write(b) // a hash never fails
	n, err := c.w.Write(b)
	c.written += int64(n)
	if f, ok := c.w.(*os.File); ok && err == nil && c.written-c.asked >= flushEvery {
		flush(f, c.asked, c.written-c.asked)
		c.asked = c.written
	}
	return err
}

func (c *copier) end(unchecked bool) (Sum, error) {
	var s Sum
	switch {
	case c.read == 0:
		return s, unusable("it is empty")
	case c.read%sector == 0:
		if !unchecked {
			return s, unusable("it is %d bytes long and has no digest at its end: it is a copy of a database, not a snapshot, or was cut off there; --restore-skip-hash-check takes it as it is", c.read)
		}
		if err := c.put(c.tail); err != nil {
			return s, err
		}
	case c.read%sector != digestSize:
		return s, unusable("it is %d bytes long, which is no whole number of pages, with or without a digest: it was cut off", c.read)
	default:
		want := hex.EncodeToString(c.tail)
		got := hex.EncodeToString(c.database.Sum(nil))
		s.Verified = want == got
		if !s.Verified && !unchecked {
			return s, unusable("its digest is wrong: at its end it says SHA-256 %s, its %d bytes have %s", want, c.written, got)
		}
	}
	s.Size, s.SHA256 = c.written, hex.EncodeToString(c.database.Sum(nil))
	if c.read > c.written {
		_, _ = c.database.Write(c.tail) // the file is the database and its digest
	}
	s.File = hex.EncodeToString(c.database.Sum(nil))
	return s, nil
}

// looksRight tells a database by its first page, and some other things by theirs.
func looksRight(b []byte) error {
	if len(b) >= magicAt+4 && binary.NativeEndian.Uint32(b[magicAt:]) == magic {
		return nil
	}
	trimmed := bytes.TrimLeft(b[:min(len(b), 512)], " \t\r\n\xef\xbb\xbf")
	is := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if len(trimmed) >= len(p) && bytes.EqualFold(trimmed[:len(p)], []byte(p)) {
				return true
			}
		}
		return false
	}
	what := "what it begins with is no bbolt database"
	switch {
	case is("\x1f\x8b"):
		what = "it is compressed (gzip): unpack it first"
	case is("\x28\xb5\x2f\xfd"):
		what = "it is compressed (zstd): unpack it first"
	case is("\xfd7zXZ"):
		what = "it is compressed (xz): unpack it first"
	case is("BZh"):
		what = "it is compressed (bzip2): unpack it first"
	case is("PK\x03\x04"):
		what = "it is a zip archive: unpack it first"
	case len(b) > 262 && bytes.HasPrefix(b[257:], []byte("ustar")):
		what = "it is a tar archive: unpack it first"
	case is("<!doctype", "<html", "<?xml"):
		what = "it is a web page: an error page, or one that asks to log in?"
	case is("{"):
		what = "it is JSON"
	case len(b) < magicAt+4:
		what = fmt.Sprintf("it is only %d bytes long", len(b))
	}
	return unusable("it is no etcd snapshot: %s", what)
}
