package seed_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed"
)

func TestJSONIDs(t *testing.T) {
	const id = types.ID(0x8b4afe0ce7f35485)
	m := seed.Member{ID: id, Name: "etcd-0", PeerURLs: []string{"http://192.0.2.10:2380"}}
	tests := []struct {
		name string
		in   any
		want string
	}{
		{"member", m, `{"id":"8b4afe0ce7f35485","name":"etcd-0","peerURLs":["http://192.0.2.10:2380"]}`},
		{"small", seed.Member{ID: 10}, `{"id":"a","name":"","peerURLs":null}`},
		{"empty directory", seed.State{Kind: seed.Empty}, `{"kind":"empty","dataDir":"","walDir":"","pristine":false,"pending":false}`},
		{
			"state", &seed.State{Kind: seed.Valid, MemberID: id, ClusterID: 11, Self: &m, Removed: []types.ID{id}},
			`{"kind":"valid","dataDir":"","walDir":"","self":{"id":"8b4afe0ce7f35485","name":"etcd-0","peerURLs":["http://192.0.2.10:2380"]},` +
				`"pristine":false,"pending":false,"memberID":"8b4afe0ce7f35485","clusterID":"b","removed":["8b4afe0ce7f35485"]}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if in, ok := tt.in.(seed.Member); ok {
				var back seed.Member
				if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, in) {
					t.Errorf("read back as %+v, %v", back, err)
				}
			}
		})
	}
}
