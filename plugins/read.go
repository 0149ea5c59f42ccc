package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// BreachError is a broken rule of the contract.
type BreachError struct {
	Rule string // its number in README.md
	Msg  string
}

func (b *BreachError) Error() string {
	return fmt.Sprintf("breaks rule %s of the plugin contract: %s", b.Rule, b.Msg)
}

func breach(rule, format string, args ...any) error {
	return &BreachError{Rule: rule, Msg: fmt.Sprintf(format, args...)}
}

// ReadResponse reads what a plugin printed when it was asked req and exited
// with status. The answer is one of three.
//  1. A Response that keeps the contract, with the answer to req.Verb.
//  2. A Response that keeps the contract, with its Error set.
//  3. An error, a *BreachError that names the rule.
func ReadResponse(req Request, doc []byte, status int) (Response, error) {
	resp, err := decode(doc)
	if err != nil {
		return Response{}, err
	}
	if resp.Version != req.Version && (resp.Error == nil || resp.Version < 1) { // an error may come in any version: rule 6.3
		return Response{}, breach("4.6", "the response says version %d, the request said %d", resp.Version, req.Version)
	}
	err = resp.oneOf(req.Verb, status)
	if err != nil {
		return Response{}, err
	}
	switch {
	case resp.Error != nil:
		err = resp.Error.check()
	case resp.Info != nil:
		err = resp.Info.check()
	default:
		err = resp.checkPeers()
	}
	if err != nil {
		return Response{}, err
	}
	return resp, nil
}

// decode is the document as rules 2.3 and 4.5 want it.
func decode(doc []byte) (Response, error) {
	switch {
	case len(doc) > MaxResponse:
		return Response{}, breach("2.3", "more than %d bytes on stdout", MaxResponse)
	case len(bytes.TrimSpace(doc)) == 0:
		return Response{}, breach("2.3", "nothing on stdout")
	case !utf8.Valid(doc):
		return Response{}, breach("2.3", "stdout is not UTF-8")
	}
	var resp *Response
	dec := json.NewDecoder(bytes.NewReader(doc))
	if err := dec.Decode(&resp); err != nil {
		var typ *json.UnmarshalTypeError
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return Response{}, breach("2.3", "stdout holds half a document, it ends with %q", tail(doc))
		case errors.As(err, &typ):
			return Response{}, breach("4", "field %s is a %s", typ.Field, typ.Value)
		}
		return Response{}, breach("2.3", "stdout is not JSON, it begins with %q: %v", head(doc), err)
	}
	if resp == nil {
		return Response{}, breach("2.3", "stdout holds null")
	}
	if rest := bytes.TrimSpace(doc[dec.InputOffset():]); len(rest) > 0 {
		return Response{}, breach("2.3", "stdout holds more than one document, after the first comes %q", head(rest))
	}
	if err := walk(json.NewDecoder(bytes.NewReader(doc)), responseShape(), ""); err != nil {
		return Response{}, err
	}
	return *resp, nil
}

// oneOf checks that there is one answer, to what was asked, and that the exit
// status agrees with it.
func (r Response) oneOf(verb string, status int) error {
	var have []string
	if r.Info != nil {
		have = append(have, "info")
	}
	if r.Peers != nil {
		have = append(have, "peers")
	}
	if r.Error != nil {
		have = append(have, "error")
	}
	want := map[string]string{VerbInfo: "info", VerbDiscover: "peers"}[verb]
	switch {
	case len(have) == 0:
		return breach("2.9", "the response to %s holds neither %s nor error", verb, want)
	case len(have) > 1:
		return breach("2.9", "the response holds %s at once", strings.Join(have, " and "))
	case r.Error != nil && status == 0:
		return breach("2.9", "exit status 0 with an error: %s", OneLine(r.Error.Message, MaxMessage))
	case r.Error == nil && status != 0:
		return breach("2.9", "exit status %d with %s", status, have[0])
	case r.Error == nil && have[0] != want:
		return breach("2.9", "the response to %s holds %s", verb, have[0])
	}
	return nil
}

// shape is the fields of an object that the contract knows, each with the
// fields of the objects in it.
type shape map[string]shape

func responseShape() shape {
	return shape{
		"version": nil, "ttl": nil,
		"info": {
			"name": nil, "version": nil, "contractVersions": nil, "description": nil,
			"parameters": {"name": nil, "description": nil, "required": nil, "default": nil},
		},
		"peers": {"name": nil, "host": nil, "port": nil, "addrs": nil, "peerURLs": nil, "clientURLs": nil},
		"error": {"code": nil, "message": nil, "retryAfter": nil},
	}
}

// walk reads one value and finds fields given twice, and fields that only
// encoding/json would take for a known one (it ignores case).
func walk(dec *json.Decoder, known shape, at string) error {
	tok, err := dec.Token()
	if err != nil {
		return breach("2.3", "stdout is not JSON: %v", err)
	}
	switch tok {
	case json.Delim('['):
		for dec.More() {
			err = walk(dec, known, at)
			if err != nil {
				return err
			}
		}
		_, err = dec.Token()
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			key, kerr := dec.Token()
			if kerr != nil {
				return breach("2.3", "stdout is not JSON: %v", kerr)
			}
			name := fmt.Sprint(key)
			if seen[name] {
				return breach("4.5", "field %s%s is given twice", at, name)
			}
			seen[name] = true
			inner, ok := known[name]
			for exact := range known {
				if !ok && strings.EqualFold(exact, name) {
					return breach("4.5", "field %s%s must be spelt %s", at, name, exact)
				}
			}
			err = walk(dec, inner, at+name+".")
			if err != nil {
				return err
			}
		}
		_, err = dec.Token()
	}
	if err != nil {
		return breach("2.3", "stdout is not JSON: %v", err)
	}
	return nil
}

const excerpt = 60

func head(doc []byte) string {
	doc = bytes.TrimSpace(doc)
	return string(doc[:min(len(doc), excerpt)])
}

func tail(doc []byte) string {
	doc = bytes.TrimSpace(doc)
	return string(doc[max(0, len(doc)-excerpt):])
}
