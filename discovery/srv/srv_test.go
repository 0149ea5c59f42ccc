package srv_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/discovery/srv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts runs every testdata/*.txtar: a zone, a source and what Await
// makes of them. Sections:
//
//	zone     the zone file
//	source   the source URL
//	env      lines of: size, peer, client, ports, mapped, suffix, local, listen, faults
//	want     lines of: name host:port addresses peerURLs clientURLs [alias]
//	error    the kind, then one line for each text that the error must have
//	without  texts that neither the error nor the log may have
//	warn     the warnings of the log, exactly; no section: none
//	queries  the questions the server got in the first try, sorted
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatal("scripts are missing", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(f)
			if err != nil {
				t.Fatal(err)
			}
			script(t, a)
		})
	}
}

func script(t *testing.T, a *txtar.Archive) {
	t.Helper()
	sections := map[string]string{}
	for _, f := range a.Files {
		sections[f.Name] = strings.ReplaceAll(string(f.Data), "\r", "")
	}
	env, faults := environment(t, sections["env"])
	server := dnstest.New(t, sections["zone"], faults)
	core, logged := observer.New(zap.InfoLevel)
	env.Log = zap.New(core)
	env.DNSServers = []netip.AddrPort{server.Addr()}
	source := strings.TrimSpace(sections["source"])
	if strings.Contains(source, "SERVER") {
		source = strings.ReplaceAll(source, "SERVER", server.Addr().String())
		env.DNSServers = nil
		env.ResolvConf = "/nonexistent"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	if strings.HasPrefix(sections["error"], "retry") || strings.Contains(sections["env"], "short") {
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	}
	defer cancel()
	p, err := discovery.Registry{"srv": srv.New}.Open(source, env)
	var peers []discovery.Peer
	var first []string
	if err == nil {
		peers, err = discovery.Await(ctx, p, discovery.AwaitOptions{
			Env:        env,
			BackoffMin: 5 * time.Millisecond,
			OnProgress: func(discovery.Progress) {
				if first == nil {
					first = server.Queries()
				}
			},
		})
	}
	if want, ok := sections["error"]; ok {
		checkError(t, err, want)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, ok := sections["error"]; !ok {
		if got := render(peers); got != sections["want"] {
			t.Errorf("got peers\n%swant\n%s", got, sections["want"])
		}
	}
	var warnings []string
	for _, e := range logged.FilterLevelExact(zap.WarnLevel).All() {
		warnings = append(warnings, e.Message)
	}
	if got, want := strings.Join(warnings, "\n"), strings.TrimSpace(sections["warn"]); got != want {
		t.Errorf("got warnings\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(sections["without"]) {
		if text := strings.TrimSpace(line); strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("error %q has %q", err, text)
		}
	}
	if want, ok := sections["queries"]; ok {
		slices.Sort(first)
		if got := strings.Join(first, "\n") + "\n"; got != want {
			t.Errorf("got queries\n%swant\n%s", got, want)
		}
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	kinds := map[string]discovery.Kind{"retry": discovery.Retry, "config": discovery.Config, "unusable": discovery.Unusable}
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != kinds[lines[0]] || kinds[lines[0]] == 0 {
		t.Fatalf("got %v, want an error of kind %s", err, lines[0])
	}
	for _, text := range lines[1:] {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has more than one line", err)
	}
}

func environment(t *testing.T, text string) (discovery.Env, dnstest.Faults) {
	t.Helper()
	// The address decides which families must be known; see the local line.
	env := discovery.Env{Size: 3, Pod: true, LocalAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	var f dnstest.Faults
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		args := words[1:]
		switch words[0] {
		case "size":
			env.Size = int(port(t, args[0]))
		case "peer":
			env.PeerScheme = args[0]
		case "client":
			env.ClientScheme = args[0]
		case "suffix":
			env.ServiceSuffix = args[0]
		case "ports":
			for _, s := range args {
				env.PeerPorts = append(env.PeerPorts, port(t, s))
			}
		case "listen":
			for _, s := range args {
				scheme, digits, _ := strings.Cut(s, ":")
				env.ClientListeners = append(env.ClientListeners, discovery.Listener{Scheme: scheme, Port: port(t, digits)})
			}
		case "local":
			env.LocalAddrs = nil
			for _, s := range args {
				env.LocalAddrs = append(env.LocalAddrs, netip.MustParseAddr(s))
			}
		case "faults":
			for _, s := range args {
				switch s {
				case "no-tcp":
					f.NoTCP = true
				case "no-edns":
					f.NoEDNS = true
				case "ignore-edns":
					f.IgnoreEDNS = true
				case "no-additional":
					f.NoAdditional = true
				case "no-soa":
					f.NoSOA = true
				case "lame":
					f.Lame = true
				case "mix-case":
					f.MixCase = true
				case "only-a":
					f.OnlyA = true
				case "silent":
					f.Silent = true
				default:
					code, ok := dns.StringToRcode[s]
					if !ok {
						t.Fatalf("unknown fault %q", s)
					}
					f.Rcode = code
				}
			}
		case "mapped":
			env.MappedPorts = true
		case "short":
		default:
			t.Fatalf("unknown env line %q", line)
		}
	}
	return env, f
}

func port(t *testing.T, s string) uint16 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

func render(peers []discovery.Peer) string {
	var b strings.Builder
	for _, p := range peers {
		var addrs []string
		for _, a := range p.Addrs {
			addrs = append(addrs, a.String())
		}
		fmt.Fprintf(&b, "%s %s:%d %s %s %s", p.Name, p.Host, p.Port,
			strings.Join(addrs, ","), strings.Join(p.PeerURLs, ","), strings.Join(p.ClientURLs, ","))
		if p.Alias != "" {
			fmt.Fprintf(&b, " %s", p.Alias)
		}
		b.WriteString("\n")
	}
	return b.String()
}
