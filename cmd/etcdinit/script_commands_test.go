package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// ports NAME...: sets each variable to a port of loopback that is free.
func ports(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: ports NAME...")
	}
	var held []net.Listener // closed after the last, so that the ports differ
	defer func() {
		for _, l := range held {
			ts.Check(l.Close())
		}
	}()
	for _, name := range args {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
		ts.Check(err)
		held = append(held, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		ts.Check(err)
		ts.Setenv(name, port)
	}
}

// hold DIR: has the database of a data directory open, as a running etcd has,
// until the script ends.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold DIR")
	}
	db := openDB(ts, args[0])
	ts.Defer(func() { ts.Check(db.Close()) })
}

func openDB(ts *testscript.TestScript, dir string) *bbolt.DB {
	db, err := bbolt.Open(ts.MkAbs(filepath.Join(dir, "member", "snap", "db")), 0o600, &bbolt.Options{Timeout: time.Second})
	ts.Check(err)
	return db
}

// removed DIR: makes of a seeded data directory what an etcd leaves that
// has run and was removed from its cluster.
func removed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: removed DIR")
	}
	state, err := seed.Inspect(ts.MkAbs(args[0]), "")
	ts.Check(err)
	id := []byte(state.MemberID.String())
	db := openDB(ts, args[0])
	ts.Check(db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket([]byte("members")).Delete(id), tx.Bucket([]byte("members_removed")).Put(id, []byte("removed")))
	}))
	ts.Check(db.Close())
	w, err := wal.Open(zap.NewNop(), ts.MkAbs(filepath.Join(args[0], "member", "wal")), &walpb.Snapshot{})
	ts.Check(err)
	_, _, _, err = w.ReadAll()
	ts.Check(err)
	ts.Check(w.Save(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(7)), Commit: new(uint64(2))}, nil))
	ts.Check(w.Close())
}

// cert NAME HOST: writes NAME.crt and NAME.key for HOST alone, good for servers
// and clients and signed by itself, so that NAME.crt is its CA too.
func cert(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cert NAME HOST")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: args[0]}, DNSNames: []string{args[1]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for ext, block := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		ts.Check(os.WriteFile(ts.MkAbs(fmt.Sprintf("%s.%s", args[0], ext)), pem.EncodeToMemory(block), 0o600))
	}
}

// condition knows [root]: the script runs as the superuser.
func condition(name string) (bool, error) {
	if name == "root" {
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}
