package seed_test

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// Three members; the directory is that of etcd-0.
func Example() {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if rerr := os.RemoveAll(dir); rerr != nil {
			fmt.Println(rerr)
		}
	}()

	plan, err := seed.New(seed.Spec{
		DataDir: dir,
		Token:   "t1",
		Self:    "etcd-0",
		Members: []seed.Member{
			{Name: "etcd-0", PeerURLs: []string{"http://etcd-0.example.com:2380"}, ClientURLs: []string{"http://etcd-0.example.com:2379"}},
			{Name: "etcd-1", PeerURLs: []string{"http://etcd-1.example.com:2380"}},
			{Name: "etcd-2", PeerURLs: []string{"http://etcd-2.example.com:2380"}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err = plan.Apply(context.Background(), zap.NewNop()); err != nil {
		fmt.Println(err)
		return
	}
	state, err := seed.Verify(dir, "", true)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(state.Kind, state.Self.Name, "of", len(state.Members), "members, cluster", state.ClusterID)
	fmt.Println("pristine:", state.Pristine, "- ours:", state.Compare(plan).SameMember)
	// Output:
	// valid etcd-0 of 3 members, cluster e0667ab46ce01024
	// pristine: true - ours: true
}
