package agent

import (
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

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

// writeFile makes path hold data, whole or not at all, whatever the umask.
func writeFile(path string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) //nolint:errcheck // the first error is the one to tell
		}
	}()
	if _, err := f.Write(data); err != nil {
		_ = f.Close() //nolint:errcheck // as above
		return err
	}
	if err := f.Chmod(mode); err != nil {
		_ = f.Close() //nolint:errcheck // as above
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close() //nolint:errcheck // as above
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// cutScheme splits scheme://rest.
func cutScheme(url string) (scheme, rest string, ok bool) { return strings.Cut(url, "://") }

// WriteReport puts the JSON report where it was asked for. A termination log
// is a file that is mounted in place, so it is written, not renamed.
func WriteReport(path string, data []byte, log *zap.Logger) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		log.Warn("no directory for the report", zap.String("path", path), zap.Error(err))
	}
	return os.WriteFile(path, data, 0o644)
}
