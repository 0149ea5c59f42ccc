package seed_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// snapshotPath is where the steps with a snapshot read it: beside the data directory.
func snapshotPath(spec seed.Spec) string { return filepath.Join(filepath.Dir(spec.DataDir), "snap.db") }

// stagedStep does one of the steps with a snapshot.
func stagedStep(ctx context.Context, spec seed.Spec, do string) error {
	s := seed.Snapshot{Name: "snap.db", Unchecked: true, Whole: do == stepFeed, Over: do == stepFeed, Open: func(context.Context) (io.ReadCloser, int64, time.Time, error) {
		f, err := os.Open(snapshotPath(spec))
		if err != nil {
			return nil, 0, time.Time{}, &seed.Error{Kind: seed.Write, Msg: "the snapshot", Err: err}
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, time.Time{}, errors.Join(err, f.Close())
		}
		return f, info.Size(), info.ModTime(), nil
	}}
	staged, err := seed.Stage(ctx, spec, s, zap.NewNop())
	if err != nil {
		return err
	}
	p, err := seed.New(spec)
	if err != nil {
		return err
	}
	if do == stepRestore {
		if p, err = p.Restoring(staged, 1000); err != nil {
			return err
		}
		return p.Apply(ctx, zap.NewNop())
	}
	j, err := seed.NewJoiner(spec, joinedAs(p))
	if err != nil {
		return err
	}
	if j, err = j.Fed(staged); err != nil {
		return err
	}
	return j.Replace(ctx, zap.NewNop())
}

func mustStagedStep(t *testing.T, spec seed.Spec, do string) {
	t.Helper()
	if err := stagedStep(t.Context(), spec, do); err != nil {
		t.Fatal(err)
	}
}

// snapshotBeside puts the copy of a database beside the data directory; for a member to be
// fed, of one that knows it, and the seed that it has so far into the data directory.
func snapshotBeside(t *testing.T, spec seed.Spec, do string) {
	t.Helper()
	old := trio(filepath.Join(t.TempDir(), "old"), "m1")
	mustApply(t, old)
	path := filepath.Join(old.DataDir, "member", "snap", "db")
	if do == stepFeed {
		knows(t, path, spec)
		mustJoin(t, spec)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.DataDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshotPath(spec), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// knows adds the joining member to a database, as a learner.
func knows(t *testing.T, path string, spec seed.Spec) {
	t.Helper()
	joined := joinedAs(mustPlan(t, spec))
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		members, meta := tx.Bucket(schema.Members.Name()), tx.Bucket(schema.Meta.Name())
		m := joined.Self
		value, merr := json.Marshal(map[string]any{"id": uint64(m.ID), "peerURLs": m.PeerURLs, "isLearner": true})
		if merr != nil {
			return merr
		}
		var conf raftpb.ConfState
		if uerr := json.Unmarshal(slices.Clone(meta.Get(schema.MetaConfStateName)), &conf); uerr != nil {
			return uerr
		}
		conf.Learners = append(conf.Learners, uint64(m.ID))
		text, terr := json.Marshal(&conf)
		return errors.Join(terr, members.Put(schema.BackendMemberKey(m.ID), value), meta.Put(schema.MetaConfStateName, text))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
