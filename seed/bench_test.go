package seed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/etcdinit/etcdinit/seed"
)

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		b.Run(fmt.Sprint(n, "members"), func(b *testing.B) {
			spec := seed.Spec{Token: "bench", Self: "m0"}
			for i := range n {
				spec.Members = append(spec.Members, seed.Member{
					Name: fmt.Sprint("m", i), PeerURLs: []string{fmt.Sprintf("http://m%d.etcd.example.com:2380", i)},
				})
			}
			root := b.TempDir()
			for i := 0; b.Loop(); i++ {
				spec.DataDir = filepath.Join(root, strconv.Itoa(i))
				mustApply(b, spec)
				b.StopTimer()
				if err := os.RemoveAll(spec.DataDir); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkInspect(b *testing.B) {
	dir := b.TempDir()
	mustApply(b, trio(dir, "m1"))
	for b.Loop() {
		if _, err := seed.Inspect(dir, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyDeep(b *testing.B) {
	dir := b.TempDir()
	mustApply(b, trio(dir, "m1"))
	for b.Loop() {
		if _, err := seed.Verify(dir, "", true); err != nil {
			b.Fatal(err)
		}
	}
}
