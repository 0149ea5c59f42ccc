package seed_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/etcdinit/etcdinit/seed"
)

// FuzzRecord: whatever a record holds, reading answers, and what it accepts comes
// back the same.
func FuzzRecord(f *testing.F) {
	for _, name := range []string{"etcdinit-seed.json.golden"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{"version":1,"kind":"computed","name":"m1","peerURLs":["http://h:1"],"memberID":"1","clusterID":"2","token":"t","planDigest":"d"}`,
		`{"version":2}`, `{"version":1,"kind":"birth","memberID":"1","clusterID":"2"}`, `{`, ``, `null`, `[]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r, back seed.Record
		if json.Unmarshal(text, &r) != nil {
			return
		}
		again, err := json.Marshal(r)
		if err == nil {
			err = json.Unmarshal(again, &back)
		}
		if err != nil || !reflect.DeepEqual(normal(r), normal(back)) {
			t.Errorf("%s: %+v became %+v, %v", text, r, back, err)
		}
		if r.Kind == seed.RecordBirth && (r.Roster.Disk(r.MemberID.String()) != r.DiskID || !r.DiskID.Valid()) {
			t.Errorf("accepted %+v", r)
		}
	})
}

// normal makes an empty list and none the same.
func normal(r seed.Record) seed.Record {
	if len(r.PeerURLs) == 0 {
		r.PeerURLs = nil
	}
	if len(r.ClientURLs) == 0 {
		r.ClientURLs = nil
	}
	if len(r.Roster) == 0 {
		r.Roster = nil
	}
	return r
}
