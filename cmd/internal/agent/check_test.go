package agent

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed"
)

func TestStartable(t *testing.T) {
	self := &seed.Member{ID: 1, Name: "etcd-0"}
	tests := []struct {
		name string
		in   seed.State
		want string // "" is startable
		kind Kind
	}{
		{"empty", seed.State{Kind: seed.Empty}, "", 0},
		{"ours", seed.State{Kind: seed.Valid, MemberID: 1, Self: self}, "", 0},
		{"somebody else was removed", seed.State{Kind: seed.Valid, MemberID: 1, Self: self, Removed: []types.ID{2}}, "", 0},
		{"removed (WB-54)", seed.State{Kind: seed.Valid, DataDir: "/d", MemberID: 1, ClusterID: 2, Removed: []types.ID{1}}, "/d holds member 1, which was removed from cluster 2", Foreign},
		{"a joiner that has not caught up", seed.State{Kind: seed.Valid, DataDir: "/d", MemberID: 1, ClusterID: 2}, "not yet the member itself", Foreign},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Startable(&tt.in)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Kind != tt.kind || !strings.Contains(e.Msg, tt.want) {
				t.Errorf("got %v, want kind %d and %q", err, tt.kind, tt.want)
			}
		})
	}
	var damaged *seed.Error
	if err := Startable(&seed.State{Kind: seed.Broken, Reason: "torn"}); !errors.As(err, &damaged) || damaged.Kind != seed.Damaged {
		t.Errorf("broken: %v", err)
	}
}
