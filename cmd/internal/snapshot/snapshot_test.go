package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// content is what the servers of the tests have.
func content() []byte { return bytes.Repeat([]byte("a snapshot, as far as this goes. "), 3000) }

func TestParse(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"/backup/a b?.db": "/backup/a b?.db", "relative.db": "relative.db", "file:///backup/x.db": "/backup/x.db",
		"https://user:secret@example.org/x.db?sig=secret#y": "https://user:xxxxx@example.org/x.db", "http://example.org/x": "http://example.org/x",
	} {
		if s, err := Parse(place); err != nil || s.Name != want {
			t.Errorf("%s: %+v, %v", place, s, err)
		}
	}
	for _, place := range []string{"ftp://example.org/x", "file://host/x", "https:///x", "s3://bucket/x"} {
		if s, err := Parse(place); err == nil {
			t.Errorf("%s: %+v", place, s)
		}
	}
}

func statusOf(err error) exit.Status {
	var e *exit.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err = s.Open(t.Context()); statusOf(err) != exit.Config {
		t.Errorf("a file that is not there: %v", err)
	}
	if err = os.WriteFile(path, content(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, size, modified, err := s.Open(t.Context())
	if err != nil || size != int64(len(content())) || time.Since(modified) > time.Hour {
		t.Fatalf("%d, %v, %v", size, modified, err)
	}
	if err = r.Close(); err != nil {
		t.Error(err)
	}
	dir, err := Parse(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := dir.Open(t.Context()); statusOf(err) != exit.Config {
		t.Errorf("a directory: %v", err)
	}
}

// serve answers the first request as first does, and each later one whole from where it is
// asked for.
func serve(t *testing.T, first http.HandlerFunc, change func(http.Header)) *Source {
	t.Helper()
	asked := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		if !asked {
			asked = true
			first(w, r)
			return
		}
		var from int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err != nil {
			_, _ = w.Write(content()) //nolint:errcheck // the client tells
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content())-1, len(content())))
		w.Header().Set("Content-Length", strconv.Itoa(len(content())-from))
		change(w.Header())
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content()[from:]) //nolint:errcheck // the client tells
	}))
	t.Cleanup(srv.Close)
	s, err := Parse(srv.URL + "/x.db?secret=1")
	if err != nil {
		t.Fatal(err)
	}
	s.stall = 300 * time.Millisecond
	return s
}

func readAll(t *testing.T, s *Source) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, _, _, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // opened for reading
	return io.ReadAll(r)
}

// half sends a half of the content, and hangs or ends.
func half(hang bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content())))
		_, _ = w.Write(content()[:len(content())/2]) //nolint:errcheck // the client tells
		if hang {
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			<-r.Context().Done()
		}
	}
}

// TestResume: a server that breaks off, hangs in the middle or before its answer, or is not
// ready yet, is asked for the rest.
func TestResume(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]http.HandlerFunc{
		"breaks off":      half(false),
		"hangs":           half(true),
		"never begins":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"is not ready":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"is too much for": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, first, func(http.Header) {})
			told := 0
			s.OnRetry = func(err error) {
				told++
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("it tells the parameters: %v", err)
				}
			}
			got, err := readAll(t, s)
			if err != nil || !bytes.Equal(got, content()) || told != 1 {
				t.Errorf("%d bytes, %v, told %d times", len(got), err, told)
			}
		})
	}
}

// TestResumeRefuses: what comes then is not the rest of the same file.
func TestResumeRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(http.Header){
		"another file": func(h http.Header) { h.Set("ETag", `"two"`) },
		"another place": func(h http.Header) {
			h.Set("Content-Range", fmt.Sprintf("bytes 7-%d/%d", len(content())-1, len(content())))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := readAll(t, serve(t, half(false), change)); statusOf(err) != exit.Unusable {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	if _, err := readAll(t, serve(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, nil)); statusOf(err) != exit.Unusable {
		t.Errorf("404: %v", err)
	}
}
