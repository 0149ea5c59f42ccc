package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/seed"
)

// handoff writes what etcd must still be told, from the members bucket.
func (a *agent) handoff(r *Result, state *seed.State, found *Found) error {
	r.Handoff = a.handoffOf(state, found)
	if a.EnvFile != "" {
		if err := writeFile(a.EnvFile, etcdconf.EnvFile(r.Handoff), 0o644); err != nil {
			return &Error{Kind: Output, Msg: "write the handoff (--env-file)", Err: err}
		}
		r.EnvFile = a.EnvFile
	}
	if a.ConfigOut != "" {
		data, err := a.Etcd.Resolved(r.Handoff)
		if err != nil {
			return err
		}
		if err := writeFile(a.ConfigOut, data, a.modeOfConfig()); err != nil {
			return &Error{Kind: Output, Msg: "write the resolved configuration (--config-out)", Err: err}
		}
		r.ConfigOut = a.ConfigOut
	}
	return nil
}

func (a *agent) handoffOf(state *seed.State, found *Found) Handoff {
	self := state.Self
	h := Handoff{Name: self.Name, AdvertisePeerURLs: self.PeerURLs, AdvertiseClientURLs: self.ClientURLs}
	host := ""
	if len(self.PeerURLs) > 0 {
		host = hostOf(self.PeerURLs[0])
	}
	if len(h.AdvertiseClientURLs) == 0 {
		// A member that stock etcd bootstrapped and that never published.
		h.AdvertiseClientURLs = a.clientURLs(host)
	}
	if a.ListenSelf {
		addr := a.narrowest(found, host)
		if !addr.IsValid() {
			a.warn("--listen-self: this member's address is not known without discovery (give --self-ip): the listen URLs stay as they are")
			return h
		}
		h.ListenPeerURLs = etcdconf.ListenSelf(a.Etcd.ListenPeerURLs, addr)
		h.ListenClientURLs = etcdconf.ListenSelf(a.Etcd.ListenClientURLs, addr)
	}
	return h
}

func (a *agent) clientURLs(host string) []string {
	if len(a.Etcd.AdvertiseClients) > 0 {
		return a.Etcd.AdvertiseClients
	}
	var urls []string
	for _, l := range a.Etcd.ClientListeners() {
		if l.Unix() {
			continue
		}
		urls = append(urls, l.URL(host))
	}
	return urls
}

// modeOfConfig keeps the static configuration's own permissions.
func (a *agent) modeOfConfig() os.FileMode {
	if info, err := os.Stat(a.Etcd.File); a.Etcd.File != "" && err == nil {
		return info.Mode().Perm()
	}
	return 0o644
}

// writeFile makes path hold data, whole or not at all, whatever the umask. A
// symbolic link stays one, and what is no regular file (/dev/stdout, a pipe) is
// written to, never replaced.
func writeFile(path string, data []byte, mode os.FileMode) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return &os.PathError{Op: "write", Path: path, Err: errors.New("is a directory, want the name of a file")}
	case err == nil && !info.Mode().IsRegular():
		return writeInPlace(path, data)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // etcd's user reads it
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeInPlace writes to what is there.
func writeInPlace(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // the path that the operator gave
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// cutScheme splits scheme://rest.
func cutScheme(url string) (scheme, rest string, ok bool) { return strings.Cut(url, "://") }

// WriteReport puts the JSON report where it was asked for. A termination log
// is a file that is mounted in place, so it is written, not renamed.
func WriteReport(path string, data []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // whoever supervises reads it
	if err == nil {
		err = os.WriteFile(path, data, 0o644) //nolint:gosec // as above
	}
	if err != nil {
		return &Error{Kind: Output, Msg: "write the report (--report)", Err: err}
	}
	return nil
}
