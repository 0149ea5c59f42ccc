package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"etcdinit": main})
}

// TestScripts runs every script of testdata/script on the real main.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "", // rewrites what cmp compares with
		RequireExplicitExec: false,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("ETCDINIT_LOG_FORMAT", "console")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":  status,
			"dns":     serveZone,
			"tree":    tree,
			"ports":   ports,
			"hold":    hold,
			"removed": removed,
			"cert":    cert,
		},
		Condition: condition,
	})
}

// status N command...: the command must end with exit status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case err == nil:
	case asExit(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Fatalf("%s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func asExit(err error, target **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // testscript hands it over unwrapped
	*target = e
	return ok
}

// tree DIR FILE: writes names, modes, sizes, times and content sums of DIR to
// FILE, to compare before and after.
func tree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tree DIR FILE")
	}
	var b strings.Builder
	root := ts.MkAbs(args[0])
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s %d %d", rel, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sum(data))
		}
		b.WriteString("\n")
		return nil
	})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

func sum(data []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range data {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// dns ZONE [DURATION ZONE]...: serves zone files from a DNS server on loopback,
// each for the time behind it, the last one repeats. $DNS is its address, $DNSLOG
// a file with one line a question. A zone file may begin with ";! rcode NAME",
// ";! drop" or ";! truncate" (UDP answers carry TC and nothing else).
func serveZone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 1 {
		ts.Fatalf("usage: dns ZONE [DURATION ZONE]...")
	}
	s := &zoneServer{start: time.Now()}
	for i := 0; i < len(args); i += 2 {
		phase := zonePhase{zone: parseZone(ts, args[i])}
		if i > 0 {
			d, err := time.ParseDuration(args[i-1])
			ts.Check(err)
			s.phases[len(s.phases)-1].lasts = d
		}
		s.phases = append(s.phases, phase)
	}
	logPath := ts.MkAbs("dns.log")
	logFile, err := os.Create(logPath)
	ts.Check(err)
	s.log = logFile
	var listen net.ListenConfig
	// TCP first: connections of other programs use up its ports, not those of UDP.
	stream, err := listen.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	ts.Check(err)
	packets, err := listen.ListenPacket(context.Background(), "udp4", stream.Addr().String())
	ts.Check(err)
	var running sync.WaitGroup
	failed := make(chan error, 2) // nil after a shutdown
	servers := []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: stream, Handler: s}}
	for _, srv := range servers {
		ready := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(ready) }
		running.Go(func() { failed <- srv.ActivateAndServe() })
		<-ready
	}
	ts.Defer(func() {
		for _, srv := range servers {
			ts.Check(srv.Shutdown())
		}
		running.Wait()
		ts.Check(errors.Join(<-failed, <-failed, logFile.Close()))
	})
	ts.Setenv("DNS", packets.LocalAddr().String())
	ts.Setenv("DNSLOG", logPath)
}

type zone struct {
	records  []dns.RR
	rcode    int
	drop     bool
	truncate bool
}

type zonePhase struct {
	zone  zone
	lasts time.Duration
}

type zoneServer struct {
	start  time.Time
	phases []zonePhase
	mu     sync.Mutex
	log    *os.File
}

func parseZone(ts *testscript.TestScript, name string) zone {
	text := ts.ReadFile(name)
	z := zone{}
	for line := range strings.Lines(text) {
		words := strings.Fields(strings.TrimPrefix(line, ";!"))
		if !strings.HasPrefix(line, ";!") || len(words) == 0 {
			continue
		}
		switch words[0] {
		case "rcode":
			z.rcode = dns.StringToRcode[words[1]]
		case "drop":
			z.drop = true
		case "truncate":
			z.truncate = true
		default:
			ts.Fatalf("%s: unknown directive %q", name, line)
		}
	}
	p := dns.NewZoneParser(strings.NewReader(text), "example.com.", name)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		z.records = append(z.records, rr)
	}
	ts.Check(p.Err())
	return z
}

func (s *zoneServer) now() zone {
	elapsed := time.Since(s.start)
	for _, p := range s.phases {
		if p.lasts == 0 || elapsed < p.lasts {
			return p.zone
		}
		elapsed -= p.lasts
	}
	return s.phases[len(s.phases)-1].zone
}

// ServeDNS answers from the zone of this moment, with the addresses of SRV
// targets in the additional section as name servers send them.
func (s *zoneServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z, question := s.now(), q.Question[0]
	s.mu.Lock()
	fmt.Fprintf(s.log, "%s %s %s\n", question.Name, dns.TypeToString[question.Qtype], w.LocalAddr().Network())
	s.mu.Unlock()
	if z.drop {
		return
	}
	m := new(dns.Msg)
	m.SetRcode(q, z.rcode)
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), false)
	}
	if z.rcode == dns.RcodeSuccess {
		z.fill(m, question)
	}
	if z.truncate && w.LocalAddr().Network() == "udp" {
		m.Answer, m.Extra, m.Truncated = nil, nil, true
	}
	if err := w.WriteMsg(m); err != nil {
		s.mu.Lock()
		fmt.Fprintf(s.log, "not answered: %v\n", err)
		s.mu.Unlock()
	}
}

func (z zone) fill(m *dns.Msg, question dns.Question) {
	name, exists := dns.CanonicalName(question.Name), false
	for range 8 { // along CNAMEs
		next := ""
		for _, rr := range z.records {
			h := rr.Header()
			if dns.CanonicalName(h.Name) != name {
				continue
			}
			exists = true
			if h.Rrtype == question.Qtype {
				m.Answer = append(m.Answer, rr)
			} else if cname, ok := rr.(*dns.CNAME); ok {
				m.Answer = append(m.Answer, rr)
				next = dns.CanonicalName(cname.Target)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	for _, rr := range m.Answer {
		srv, ok := rr.(*dns.SRV)
		for _, extra := range z.records {
			t := extra.Header().Rrtype
			if ok && (t == dns.TypeA || t == dns.TypeAAAA) && dns.CanonicalName(extra.Header().Name) == dns.CanonicalName(srv.Target) {
				m.Extra = append(m.Extra, extra)
			}
		}
	}
	if len(m.Answer) > 0 {
		return
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	for _, rr := range z.records {
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		}
	}
}
