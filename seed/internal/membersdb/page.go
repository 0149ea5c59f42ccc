package membersdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt's own reader maps the file and trusts what it finds there: a damaged page
// number sends it into endless recursion, which no recover can stop. This one
// reads page by page, checks every bound, and visits no page twice.

const (
	magic         = 0xED0CDAED
	formatVersion = 2
	metaSize      = 64
	pageHeader    = 16
	noFreelist    = 1<<64 - 1

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	bucketFlag = 0x01
	maxDepth   = 64
	maxPage    = 1 << 30 // bytes of one page with its overflow
)

// pageFile is a database file opened for reading, at its newest valid meta page.
type pageFile struct {
	f        io.ReaderAt
	size     int64
	pageSize int64
	root     uint64
	freelist uint64
	pages    uint64 // high-water mark: the number of pages in use or free
	txid     uint64
	seen     map[uint64]bool // pages visited, where a walk asks for it
}

func openPages(f io.ReaderAt, size int64) (*pageFile, error) {
	if size == 0 {
		return nil, errors.New("file is empty")
	}
	var best *pageFile
	first := errors.New("no valid meta page")
	// The first meta page names the page size; where it is damaged, the second
	// one is looked for behind every size that a page can have.
	for _, off := range []int64{0, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		m, err := readMeta(f, size, off)
		if err != nil {
			if off == 0 {
				first = fmt.Errorf("no valid meta page: the first %w", err)
			}
			continue
		}
		if off != 0 && off != m.pageSize {
			continue
		}
		if best == nil || m.txid > best.txid {
			best = m
		}
	}
	if best == nil {
		return nil, first
	}
	if best.pages < 2 || best.pages > uint64(size/best.pageSize) { //nolint:gosec // a size is not negative
		return nil, fmt.Errorf("file is %d bytes, but its meta page speaks of %d pages of %d bytes: it was truncated",
			size, best.pages, best.pageSize)
	}
	return best, nil
}

func readMeta(f io.ReaderAt, size, off int64) (*pageFile, error) {
	if off+pageHeader+metaSize > size {
		return nil, fmt.Errorf("is cut off: the file is %d bytes", size)
	}
	buf := make([]byte, pageHeader+metaSize)
	if _, err := f.ReadAt(buf, off); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	m := buf[pageHeader:]
	order := binary.NativeEndian
	switch {
	case order.Uint32(m) != magic:
		return nil, errors.New("is none of bbolt's")
	case order.Uint32(m[4:]) != formatVersion:
		return nil, fmt.Errorf("has format version %d, known is %d", order.Uint32(m[4:]), formatVersion)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(m[:56])
	if sum.Sum64() != order.Uint64(m[56:]) {
		return nil, errors.New("has a wrong checksum")
	}
	p := &pageFile{
		f: f, size: size,
		pageSize: int64(order.Uint32(m[8:])),
		root:     order.Uint64(m[16:]),
		freelist: order.Uint64(m[32:]),
		pages:    order.Uint64(m[40:]),
		txid:     order.Uint64(m[48:]),
	}
	if p.pageSize < 1<<9 || p.pageSize > 1<<17 || p.pageSize&(p.pageSize-1) != 0 {
		return nil, fmt.Errorf("has page size %d", p.pageSize)
	}
	return p, nil
}

// page is one page with its overflow, or the page inside an inline bucket.
type page struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint64
	data     []byte // with the header
}

func (p *pageFile) page(id uint64) (*page, error) {
	if id < 2 || id >= p.pages {
		return nil, fmt.Errorf("page %d: not between 2 and %d", id, p.pages)
	}
	if p.seen != nil {
		if p.seen[id] {
			return nil, fmt.Errorf("page %d: referenced twice", id)
		}
		p.seen[id] = true
	}
	head := make([]byte, pageHeader)
	// A number below the high-water mark lies within the file, whose size is one.
	offset := int64(id) * p.pageSize //nolint:gosec // see above
	if _, err := p.f.ReadAt(head, offset); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	order := binary.NativeEndian
	pg := &page{
		id:       order.Uint64(head),
		flags:    order.Uint16(head[8:]),
		count:    int(order.Uint16(head[10:])),
		overflow: uint64(order.Uint32(head[12:])),
	}
	length := int64(1+pg.overflow) * p.pageSize //nolint:gosec // overflow has 32 bits
	switch {
	case pg.id != id:
		return nil, fmt.Errorf("page %d: calls itself page %d", id, pg.id)
	case pg.overflow >= p.pages-id || length > maxPage:
		return nil, fmt.Errorf("page %d: overflows by %d pages, beyond page %d", id, pg.overflow, p.pages)
	}
	if p.seen != nil {
		for i := uint64(1); i <= pg.overflow; i++ {
			if p.seen[id+i] {
				return nil, fmt.Errorf("page %d: referenced twice", id+i)
			}
			p.seen[id+i] = true
		}
	}
	pg.data = make([]byte, length)
	if _, err := p.f.ReadAt(pg.data, offset); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return pg, nil
}

// element is one entry of a leaf (flags, key, value) or a branch (key, child).
type element struct {
	bucket bool
	key    []byte
	value  []byte
	child  uint64
}

func (pg *page) element(i int) (element, error) {
	at := pageHeader + i*pageHeader // elements are 16 bytes, like the header
	if at+16 > len(pg.data) {
		return element{}, fmt.Errorf("page %d: entry %d lies outside the page", pg.id, i)
	}
	order, e := binary.NativeEndian, pg.data[at:]
	var el element
	var pos, ksize, vsize uint64
	if pg.flags == flagLeaf {
		el.bucket = order.Uint32(e)&bucketFlag != 0
		pos, ksize, vsize = uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
	} else {
		pos, ksize, el.child = uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), order.Uint64(e[8:])
	}
	if pos+ksize+vsize > uint64(len(e)) {
		return element{}, fmt.Errorf("page %d: entry %d points outside the page", pg.id, i)
	}
	el.key, el.value = e[pos:pos+ksize], e[pos+ksize:pos+ksize+vsize]
	return el, nil
}

// each calls fn for every leaf entry under page id, in order of the keys.
func (p *pageFile) each(id uint64, depth int, fn func(element) error) error {
	pg, err := p.page(id)
	if err != nil {
		return err
	}
	return p.eachIn(pg, depth, fn)
}

func (p *pageFile) eachIn(pg *page, depth int, fn func(element) error) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d: deeper than %d levels", pg.id, maxDepth)
	}
	if pg.flags != flagLeaf && pg.flags != flagBranch {
		return fmt.Errorf("page %d: neither branch nor leaf (flags %#x)", pg.id, pg.flags)
	}
	if pg.flags == flagBranch && pg.count == 0 {
		return fmt.Errorf("page %d: a branch without entries", pg.id)
	}
	var last []byte
	for i := range pg.count {
		el, err := pg.element(i)
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(last, el.key) >= 0 {
			return fmt.Errorf("page %d: entry %d is out of order", pg.id, i)
		}
		last = el.key
		if pg.flags == flagBranch {
			err = p.each(el.child, depth+1, fn)
		} else {
			err = fn(el)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucketPage returns the root page of the bucket whose entry holds value.
func (p *pageFile) bucketPage(value []byte) (*page, error) {
	if len(value) < 16 {
		return nil, errors.New("bucket header is cut off")
	}
	order := binary.NativeEndian
	if root := order.Uint64(value); root != 0 {
		return p.page(root)
	}
	inline := value[16:]
	if len(inline) < pageHeader {
		return nil, errors.New("inline bucket is cut off")
	}
	return &page{flags: order.Uint16(inline[8:]), count: int(order.Uint16(inline[10:])), data: inline}, nil
}

// freePages reads the freelist page.
func (p *pageFile) freePages() ([]uint64, error) {
	if p.freelist == noFreelist {
		return nil, nil
	}
	pg, err := p.page(p.freelist)
	if err != nil {
		return nil, fmt.Errorf("freelist: %w", err)
	}
	if pg.flags != flagFreelist {
		return nil, fmt.Errorf("freelist: page %d is none (flags %#x)", pg.id, pg.flags)
	}
	order, body, n := binary.NativeEndian, pg.data[pageHeader:], uint64(pg.count) //nolint:gosec // of 16 bits
	if n == 0xFFFF {
		n, body = order.Uint64(body), body[8:]
	}
	if n > uint64(len(body)/8) {
		return nil, fmt.Errorf("freelist: page %d: %d entries do not fit", pg.id, n)
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = order.Uint64(body[8*i:])
		if ids[i] < 2 || ids[i] >= p.pages {
			return nil, fmt.Errorf("freelist: page %d is not between 2 and %d", ids[i], p.pages)
		}
	}
	return ids, nil
}

// SkipScan gives the database in f an empty freelist page at its end, so that bbolt need
// not walk every page to find the free ones when it opens it for writing: etcd saves
// none. What is free is only not used again by the next transaction; etcd looks for the
// free pages itself when it starts.
func SkipScan(f *os.File) error {
	size, err := statSize(f)
	if err != nil {
		return err
	}
	p, err := openPages(f, size)
	if err != nil || p.freelist != noFreelist {
		return err
	}
	for _, off := range []int64{0, p.pageSize} {
		m, merr := readMeta(f, size, off)
		if merr != nil || m.txid != p.txid || m.pages != p.pages {
			continue
		}
		order := binary.NativeEndian
		page := make([]byte, p.pageSize)
		order.PutUint64(page, p.pages)
		order.PutUint16(page[8:], flagFreelist)
		if _, err = f.WriteAt(page, int64(p.pages)*p.pageSize); err != nil { //nolint:gosec // below the file's size
			return err
		}
		meta := make([]byte, metaSize)
		if _, err = f.ReadAt(meta, off+pageHeader); err != nil {
			return err
		}
		order.PutUint64(meta[32:], p.pages)
		order.PutUint64(meta[40:], p.pages+1)
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56]) // a hash never fails
		order.PutUint64(meta[56:], sum.Sum64())
		_, err = f.WriteAt(meta, off+pageHeader)
		return err
	}
	return errors.New("no meta page to change")
}

// Unskipped reads the first size bytes of a database as they were before SkipScan.
func Unskipped(f *os.File, size int64) (io.Reader, error) {
	all := func() io.Reader { return io.NewSectionReader(f, 0, size) }
	now, err := statSize(f)
	if err != nil {
		return nil, err
	}
	p, err := openPages(f, now)
	if err != nil {
		return nil, err
	}
	if p.freelist == noFreelist || p.freelist+1 != p.pages {
		return all(), nil
	}
	for _, off := range []int64{0, p.pageSize} {
		m, err := readMeta(f, now, off)
		if err != nil || m.txid != p.txid || m.pages != p.pages {
			continue
		}
		order := binary.NativeEndian
		meta := make([]byte, metaSize)
		if _, err := f.ReadAt(meta, off+pageHeader); err != nil {
			return nil, err
		}
		order.PutUint64(meta[32:], noFreelist)
		order.PutUint64(meta[40:], p.pages-1)
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56]) // a hash never fails
		order.PutUint64(meta[56:], sum.Sum64())
		at := off + pageHeader
		return io.MultiReader(io.NewSectionReader(f, 0, at), bytes.NewReader(meta), io.NewSectionReader(f, at+metaSize, size-at-metaSize)), nil
	}
	return all(), nil
}

func statSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("not a regular file (%s)", info.Mode())
	}
	return info.Size(), nil
}
