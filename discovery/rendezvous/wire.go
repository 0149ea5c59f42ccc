package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

const (
	// Path is what an agent answers; everything else gets 404.
	Path = "/etcdinit/v1/state"
	// Format is the format version of an Answer.
	Format = 1
	// maxAnswer bounds an answer's body.
	maxAnswer = 64 << 10
	// maxText bounds each string of an answer.
	maxText = 512
	// maxMembers bounds a plan.
	maxMembers = 64
)

// Answer is the JSON that an agent answers with.
type Answer struct {
	Format    int      `json:"format"`
	Digest    string   `json:"digest"`
	ClusterID ID       `json:"clusterID"`
	MemberID  ID       `json:"memberID"`
	Nonce     string   `json:"nonce"`
	State     State    `json:"state"`
	Members   []Member `json:"members"`
}

// formatError: the answer is an agent's, of a format this version does not know.
type formatError int

func (e formatError) Error() string {
	return fmt.Sprintf("an etcdinit of format %d answered, this one knows format %d: run the same version on every node", int(e), Format)
}

// parse reads an answer, and believes none of it that is out of bounds.
func parse(r io.Reader) (Answer, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("answer broken off: %w", err)
	}
	if len(data) > maxAnswer {
		return Answer{}, fmt.Errorf("answer of more than %d bytes", maxAnswer)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Answer{}, errors.New("answer is not an agent's JSON")
	}
	if head.Format != Format {
		return Answer{}, formatError(head.Format)
	}
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&a); err != nil {
		return Answer{}, errors.New("answer is not an agent's JSON")
	}
	if dec.More() {
		return Answer{}, errors.New("answer has something after its JSON")
	}
	return a, a.check()
}

func (a Answer) check() error {
	switch a.State {
	case Waiting, Committed, Released:
	default:
		return fmt.Errorf("answer has state %.20q", string(a.State))
	}
	switch {
	case !a.ClusterID.valid() || !a.MemberID.valid():
		return errors.New("answer without a cluster or member ID")
	case a.Digest == "" || a.Nonce == "":
		return errors.New("answer without a digest or nonce")
	case len(a.Members) > maxMembers:
		return fmt.Errorf("answer with more than %d members", maxMembers)
	}
	texts := []string{a.Digest, a.Nonce}
	for _, m := range a.Members {
		if !m.ID.valid() || len(m.PeerURLs) > maxMembers {
			return errors.New("answer with a member that has no ID")
		}
		texts = append(append(texts, m.Name), m.PeerURLs...)
	}
	for _, t := range texts {
		if len(t) > maxText || strings.ContainsFunc(t, unprintable) {
			return errors.New("answer with an overlong or unprintable string")
		}
	}
	return nil
}

// valid: 1 to 16 digits of lower hex, not zero-padded.
func (id ID) valid() bool {
	return id != "" && len(id) <= 16 && id[0] != '0' && strings.Trim(string(id), "0123456789abcdef") == ""
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// clean makes a foreign string safe to show.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxText)]
}

func cleanAll(list []string) []string {
	out := make([]string, 0, min(len(list), maxMembers))
	for _, s := range list[:min(len(list), maxMembers)] {
		out = append(out, clean(s))
	}
	return out
}
