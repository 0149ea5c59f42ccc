package snapfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"testing/iotest"
)

// database is what Copy takes for one: its first page has bbolt's magic number.
func database(pages int) []byte {
	b := bytes.Repeat([]byte("0123456789abcdef"), pages*sector/16)
	binary.NativeEndian.PutUint32(b[magicAt:], magic)
	return b
}

func withDigest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(slices.Clone(b), sum[:]...)
}

// TestCopyPieces: however the stream comes in pieces, what is written is the database, and
// both sums are those of sha256sum.
func TestCopyPieces(t *testing.T) {
	t.Parallel()
	for _, pages := range []int{1, 2, 2048, 2049, 4096} { // around the size of one read
		data := withDigest(database(pages))
		for name, r := range map[string]*bytes.Reader{"at once": bytes.NewReader(data), "half by half": bytes.NewReader(data)} {
			var w bytes.Buffer
			src := iotest.DataErrReader(r)
			if name != "at once" {
				src = iotest.HalfReader(r)
			}
			last := int64(0)
			sum, err := Copy(t.Context(), &w, src, false, func(read int64) { last = read })
			want := sha256.Sum256(data)
			if err != nil || !sum.Verified || sum.Size != int64(pages*sector) || !bytes.Equal(w.Bytes(), data[:len(data)-digestSize]) ||
				sum.File != hex.EncodeToString(want[:]) || sum.SHA256 != hex.EncodeToString(data[len(data)-digestSize:]) || last != int64(len(data)) {
				t.Errorf("%d pages, %s: %+v, %v", pages, name, sum, err)
			}
		}
	}
}

// TestCopyUnchecked: without a digest the whole is the database; with a wrong one it is
// left out all the same.
func TestCopyUnchecked(t *testing.T) {
	t.Parallel()
	plain := database(4)
	wrong := append(slices.Clone(plain), make([]byte, digestSize)...)
	for name, data := range map[string][]byte{"no digest": plain, "a wrong one": wrong} {
		var w bytes.Buffer
		if _, err := Copy(t.Context(), &w, bytes.NewReader(data), false, nil); err == nil {
			t.Errorf("%s: taken without being asked", name)
		}
		w.Reset()
		sum, err := Copy(t.Context(), &w, bytes.NewReader(data), true, nil)
		if err != nil || sum.Verified || !bytes.Equal(w.Bytes(), plain) {
			t.Errorf("%s: %+v, %v, %d bytes", name, sum, err, w.Len())
		}
	}
}

// FuzzCopy: whatever comes, it is a whole snapshot or an *Error, and never a panic. What is
// accepted has the digest that is behind it.
func FuzzCopy(f *testing.F) {
	for _, seed := range [][]byte{nil, []byte("x"), []byte("<html>"), {0x1f, 0x8b}, database(1), withDigest(database(1)), withDigest(database(3))[:700]} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, unchecked bool) {
		var w bytes.Buffer
		sum, err := Copy(t.Context(), &w, bytes.NewReader(data), unchecked, nil)
		var bad *Error
		switch {
		case err != nil && !errors.As(err, &bad):
			t.Fatal(err)
		case err != nil:
			return
		}
		got := sha256.Sum256(w.Bytes())
		if sum.SHA256 != hex.EncodeToString(got[:]) || sum.Size != int64(w.Len()) || !bytes.HasPrefix(data, w.Bytes()) {
			t.Fatalf("%+v of %d bytes", sum, w.Len())
		}
		if !unchecked && (!sum.Verified || hex.EncodeToString(data[len(data)-digestSize:]) != sum.SHA256) {
			t.Fatalf("accepted without its digest: %+v", sum)
		}
	})
}
