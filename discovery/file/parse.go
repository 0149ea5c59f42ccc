package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// document is the whole file.
type document struct {
	Peers []entry `json:"peers" yaml:"peers"`
}

// entry is one peer: a host with a port, or peer URLs.
type entry struct {
	Name       string   `json:"name"       yaml:"name"`
	Host       string   `json:"host"       yaml:"host"`
	Port       uint16   `json:"port"       yaml:"port"`
	PeerURLs   []string `json:"peerURLs"   yaml:"peerURLs"`
	ClientURLs []string `json:"clientURLs" yaml:"clientURLs"`

	line int
}

// UnmarshalYAML keeps the line for messages.
func (e *entry) UnmarshalYAML(n *yaml.Node) error {
	type plain entry
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			switch k := n.Content[i]; k.Value {
			case "name", "host", "port", "peerURLs", "clientURLs":
			default:
				return fmt.Errorf("line %d: unknown key %q in a peer; known are name, host, port, peerURLs, clientURLs", k.Line, k.Value)
			}
		}
	}
	if err := n.Decode((*plain)(e)); err != nil {
		return err
	}
	e.line = n.Line
	return nil
}

// halfError is an error of a file that ends too early: its writer may
// not be done.
type halfError struct {
	err   error
	empty bool // there is nothing to be wrong yet
}

func (h *halfError) Error() string { return h.err.Error() }

func (h *halfError) Unwrap() error { return h.err }

// parse reads a peers file. Errors name the line.
func parse(text []byte) ([]discovery.Peer, error) {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 {
		return nil, &halfError{errors.New("the file is empty"), true}
	}
	var doc document
	var err error
	if trimmed[0] == '{' {
		err = parseJSON(text, &doc)
	} else {
		err = parseYAML(text, &doc)
	}
	if err != nil {
		return nil, err
	}
	if len(doc.Peers) == 0 {
		return nil, &halfError{errors.New("no peers yet, want 'peers:' with at least one entry"), true}
	}
	peers := make([]discovery.Peer, 0, len(doc.Peers))
	for i, e := range doc.Peers {
		p, err := e.peer()
		if err != nil {
			where := fmt.Sprintf("peer %d", i+1)
			if e.line > 0 {
				where = fmt.Sprintf("line %d: %s", e.line, where)
			}
			if e.Name != "" {
				where += fmt.Sprintf(" (%s)", e.Name)
			}
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func parseYAML(text []byte, doc *document) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(doc)
	switch {
	case errors.Is(err, io.EOF): // comments only
		return &halfError{errors.New("the file has no content yet"), true}
	case err != nil:
		err = errors.New(strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
		if !bytes.HasSuffix(text, []byte("\n")) {
			return &halfError{err, false} // the last line is not finished
		}
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("the file holds more than one YAML document")
	}
	return nil
}

func parseJSON(text []byte, doc *document) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(doc)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &halfError{errors.New("the JSON ends too early"), false}
	}
	at := d.InputOffset()
	if err == nil {
		rest := bytes.TrimSpace(text[at:])
		if len(rest) == 0 {
			return nil
		}
		err = fmt.Errorf("%q follows the JSON object", rest[0])
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &kind):
		at = kind.Offset
	}
	line := 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
	return fmt.Errorf("line %d: %s", line, strings.TrimPrefix(err.Error(), "json: "))
}

func (e entry) peer() (discovery.Peer, error) {
	p := discovery.Peer{Name: e.Name, Host: hosturl.Canonical(e.Host), Port: e.Port}
	for _, raw := range e.PeerURLs {
		u, err := hosturl.Parse(raw)
		if err != nil {
			return p, fmt.Errorf("peerURLs: %q: %w", raw, err)
		}
		if p.Host == "" {
			p.Host, p.Port = u.Host, u.Port
		}
		p.PeerURLs = append(p.PeerURLs, u.String())
	}
	for _, raw := range e.ClientURLs {
		u, err := hosturl.Parse(raw)
		if err != nil {
			return p, fmt.Errorf("clientURLs: %q: %w", raw, err)
		}
		p.ClientURLs = append(p.ClientURLs, u.String())
	}
	switch {
	case len(e.PeerURLs) > 0 && (e.Host != "" || e.Port != 0):
		return p, errors.New("host and port, or peerURLs: give one of the two")
	case len(e.PeerURLs) > 0:
		return p, nil
	case e.Host == "":
		return p, errors.New("no host, and no peerURLs")
	case strings.Contains(e.Host, "[") || strings.Contains(e.Host, "/"):
		return p, fmt.Errorf("host %q: want a host name or an address alone; a URL belongs into peerURLs", e.Host)
	case e.Port == 0:
		return p, errors.New("no port, want 1 to 65535 (etcd's is 2380)")
	}
	return p, hosturl.CheckHost(p.Host)
}

func list(peers []discovery.Peer) string {
	var s []string
	for _, p := range peers {
		s = append(s, p.Host)
	}
	return strings.Join(s, ", ")
}
