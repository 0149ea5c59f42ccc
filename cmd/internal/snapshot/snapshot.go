// Package snapshot opens the place that a snapshot comes from: a file or a web server.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

const (
	// stallTime is how long a server may take to begin its answer, and to go on with it.
	stallTime = 30 * time.Second
	// pauseMin and pauseMax bound the wait before a stream that broke is asked to go on.
	pauseMin = 500 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Source is the place of a snapshot.
type Source struct {
	// Name is the path, or the URL without its password and parameters.
	Name   string
	place  string
	client *http.Client // nil: a file
	stall  time.Duration
	// OnRetry, where it is not nil, is told why a stream is asked for again.
	OnRetry func(error)
}

// Parse reads what --restore-snapshot says: a path, file:///path, or an http or https
// URL. It opens nothing.
func Parse(place string) (*Source, error) {
	u, err := url.Parse(place)
	if err != nil || !strings.Contains(place, "://") {
		return &Source{Name: place, place: place}, nil //nolint:nilerr // a path may have any character
	}
	switch {
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "":
		return &Source{Name: u.Path, place: u.Path}, nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		shown := *u
		shown.RawQuery, shown.ForceQuery, shown.Fragment = "", false, ""
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one, as net/http documents
		return &Source{Name: shown.Redacted(), place: place, client: &http.Client{Transport: transport}, stall: stallTime}, nil
	}
	return nil, fmt.Errorf("--restore-snapshot %s: want a path, or a URL with file, http or https", place)
}

// Open begins to read. size is -1 where it is not known, modified zero. A server that
// gives no answer, or breaks off, is asked again until ctx ends; its stream goes on where
// it broke, if it still has the same file. What can never work is an *exit.Error.
func (s *Source) Open(ctx context.Context) (r io.ReadCloser, size int64, modified time.Time, err error) {
	if s.client == nil {
		return s.openFile()
	}
	w := &web{Source: s, ctx: ctx, size: -1}
	if err := w.again(nil); err != nil { //nolint:contextcheck // a stream keeps the one that it was opened with
		return nil, 0, time.Time{}, err
	}
	return w, w.size, w.modified, nil
}

func (s *Source) openFile() (io.ReadCloser, int64, time.Time, error) {
	f, err := os.Open(s.place)
	if err != nil {
		status, reason := exit.Write, "snapshot-unreadable"
		if errors.Is(err, fs.ErrNotExist) {
			status, reason = exit.Config, "snapshot-missing"
		}
		return nil, 0, time.Time{}, &exit.Error{Status: status, Reason: reason, Msg: "the snapshot to restore cannot be read (--restore-snapshot)", Err: err}
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file (%s)", s.place, info.Mode())
	}
	if err != nil {
		return nil, 0, time.Time{}, errors.Join(&exit.Error{Status: exit.Config, Reason: "snapshot-missing", Msg: "the snapshot to restore cannot be read (--restore-snapshot)", Err: err}, f.Close())
	}
	return f, info.Size(), info.ModTime(), nil
}

// web is the stream of a server. It is read by one goroutine.
type web struct {
	*Source
	ctx      context.Context //nolint:containedctx // of one stream, which io.Reader gives no other way
	body     io.ReadCloser
	end      context.CancelFunc // of this answer
	stalled  *time.Timer        // ends it where nothing comes
	read     int64
	size     int64
	modified time.Time
	etag     string
	pause    time.Duration
}

// Read reads on. A stream that breaks is asked for again.
func (w *web) Read(p []byte) (int, error) {
	for {
		w.stalled.Reset(w.stall)
		n, err := w.body.Read(p)
		w.read += int64(n)
		if n > 0 {
			w.pause = 0
		}
		switch {
		case n > 0:
			return n, nil // an error comes again
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && (w.size < 0 || w.read == w.size):
			return 0, io.EOF
		case w.ctx.Err() != nil:
			return 0, context.Cause(w.ctx)
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		_ = w.Close() //nolint:errcheck // it is broken
		if err = w.again(fmt.Errorf("%s broke off after %d of %d bytes: %w", w.Name, w.read, w.size, err)); err != nil {
			return 0, err
		}
	}
}

// Close ends the stream.
func (w *web) Close() error {
	w.stalled.Stop()
	w.end()
	return w.body.Close()
}

// again asks for the rest until an answer begins. broke is why; nil at first.
func (w *web) again(broke error) error {
	for {
		if broke != nil {
			if w.OnRetry != nil {
				w.OnRetry(broke)
			}
			w.pause = min(max(2*w.pause, pauseMin), pauseMax)
			select {
			case <-time.After(w.pause):
			case <-w.ctx.Done():
				return errors.Join(&exit.Error{Status: exit.Incomplete, Reason: "snapshot-incomplete", Msg: context.Cause(w.ctx).Error(), Err: broke}, nil)
			}
		}
		err := w.ask()
		var refused *exit.Error
		if err == nil || errors.As(err, &refused) {
			return err
		}
		if w.ctx.Err() != nil {
			return &exit.Error{Status: exit.Incomplete, Reason: "snapshot-incomplete", Msg: context.Cause(w.ctx).Error(), Err: err}
		}
		broke = err
	}
}

// ask asks once. An error that is no *exit.Error may pass.
func (w *web) ask() error {
	ctx, end := context.WithCancel(w.ctx)
	stalled := time.AfterFunc(w.stall, end)
	begun := false
	defer func() {
		if !begun {
			stalled.Stop()
			end()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.place, http.NoBody)
	if err != nil {
		return &exit.Error{Status: exit.Config, Reason: "snapshot-missing", Msg: "--restore-snapshot", Err: err}
	}
	req.Header.Set("Accept-Encoding", "identity")
	if w.read > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", w.read))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) { // its text has the whole URL, with what is secret in it
			err = e.Err
		}
		return fmt.Errorf("%s: %w", w.Name, err)
	}
	if err = w.accept(resp); err != nil {
		_ = resp.Body.Close() //nolint:errcheck // it is not read
		return err
	}
	begun = true
	w.body, w.end, w.stalled = resp.Body, end, stalled
	return nil
}

func (w *web) accept(resp *http.Response) error {
	etag, modified := resp.Header.Get("ETag"), time.Time{}
	if t, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		modified = t
	}
	final := func(msg string) error {
		return &exit.Error{Status: exit.Unusable, Reason: "snapshot-unusable", Msg: w.Name + " cannot be restored: " + msg}
	}
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%s: %s", w.Name, resp.Status)
	case w.read == 0 && resp.StatusCode == http.StatusOK:
		w.size, w.etag, w.modified = resp.ContentLength, etag, modified
		return nil
	case w.read > 0 && resp.StatusCode == http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", w.read)) {
			return final("the server goes on at another place than was asked for: " + resp.Header.Get("Content-Range"))
		}
		if etag != w.etag || !modified.Equal(w.modified) || resp.ContentLength >= 0 && w.size >= 0 && w.read+resp.ContentLength != w.size {
			return final("the server has another file there now: the stream broke off, and what came so far is not its beginning")
		}
		return nil
	case w.read > 0 && resp.StatusCode == http.StatusOK:
		return final("the stream broke off, and the server cannot go on in the middle (no Range)")
	}
	return final("the server says " + resp.Status)
}
