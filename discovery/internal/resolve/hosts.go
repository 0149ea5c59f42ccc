package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Host is a host name with all its addresses.
type Host struct {
	Name  string
	Addrs []netip.Addr // sorted
	Alias string       // the name behind aliases, "" where there are none
	TTL   time.Duration
}

// Hosts resolves all names, A and AAAA in parallel, or fails: never some of
// them. An IP address is its own answer. The error names every host that does
// not resolve, with what was said of it, and those that do.
//
// One family that is answered with addresses is enough: that the other one
// fails, or is not answered in time, is told, and blocks nobody. Where this host
// is not found by what is left, the records are asked again.
func (p *Pass) Hosts(ctx context.Context, names []string) (map[string]Host, error) {
	names = slices.Clone(names)
	for i := range names {
		names[i] = hosturl.Canonical(names[i])
	}
	slices.Sort(names)
	names = slices.Compact(names)
	hosts := make([]Host, len(names))
	errs := make([]*discovery.Error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			hosts[i], errs[i] = p.host(ctx, name)
		})
	}
	wg.Wait()
	return together(names, hosts, errs)
}

func together(names []string, hosts []Host, errs []*discovery.Error) (map[string]Host, error) {
	out := make(map[string]Host, len(names))
	var good, bad []string
	all := &discovery.Error{Kind: discovery.Retry}
	for i, err := range errs {
		if err == nil {
			out[names[i]] = hosts[i]
			good = append(good, fmt.Sprintf("%s=%s", names[i], hosts[i].Addrs[0]))
			all.Seen = append(all.Seen, discovery.Peer{Host: names[i], Addrs: hosts[i].Addrs})
			continue
		}
		hints := err.Hints
		err.Hints = nil
		bad = append(bad, err.Error())
		all.After = max(all.After, err.After)
		if err.AtDeadline != 0 {
			all.AtDeadline = err.AtDeadline
		}
		if doubled(names[i]) {
			all.Hints = append(all.Hints, names[i]+" repeats its domain: a trailing dot is missing in the zone file")
		}
		for _, h := range hints {
			if !slices.Contains(all.Hints, h) {
				all.Hints = append(all.Hints, h)
			}
		}
	}
	if len(bad) == 0 {
		return out, nil
	}
	all.Msg = strings.Join(bad, "; ")
	if len(good) > 0 {
		all.Msg += "; resolved: " + strings.Join(good, " ")
	}
	return nil, all
}

// host asks for both families at once.
func (p *Pass) host(ctx context.Context, name string) (Host, *discovery.Error) {
	h := Host{Name: name}
	if ip, err := netip.ParseAddr(name); err == nil {
		h.Addrs = []netip.Addr{ip}
		return h, nil
	}
	types := slices.DeleteFunc([]uint16{dns.TypeA, dns.TypeAAAA}, func(t uint16) bool { return !p.wants(t) })
	answers, errs, grace := make([]Answer, len(types)), make([]error, len(types)), make([]*time.Timer, len(types))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, t := range types {
		wg.Go(func() {
			answers[i], errs[i] = p.Ask(ctx, name, t)
			if answers[i].Outcome == Found { // the other one has as long again as one exchange may take
				grace[i] = time.AfterFunc(p.timeout, cancel)
			}
		})
	}
	wg.Wait()
	for _, timer := range grace {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, a := range answers {
		h.add(a)
	}
	for i, err := range errs {
		switch {
		case err == nil:
		case len(h.Addrs) == 0:
			e := named(name, err)
			for j, a := range answers {
				if errs[j] == nil { // the other family has nothing, which alone says little
					e.Msg += "; " + a.Said()
				}
			}
			e.Hints = append(slices.Clone(e.Hints), withheldHints(answers)...)
			return h, e
		default:
			known := named(name, err)
			known.Hints = nil
			p.tell(name+dns.TypeToString[types[i]], fmt.Sprintf("the %s records of %s are not known, it is taken by the others: %v", dns.TypeToString[types[i]], name, known))
			h.TTL = max(h.TTL, time.Second) // the answer may be another one soon
		}
	}
	if len(h.Addrs) > 0 {
		return h, nil
	}
	a := answers[0] // all are negative; the longest one decides when asking helps
	var asked []string
	for i, other := range answers {
		a.Minimum = max(a.Minimum, other.Minimum)
		asked = append(asked, dns.TypeToString[types[i]])
	}
	e := a.Negative()
	if a.Alias == "" {
		e.Msg = fmt.Sprintf("%s: no %s record, %s", name, strings.Join(asked, "/"), e.Msg)
	}
	e.Hints = append(e.Hints, withheldHints(answers)...)
	return h, e
}

// withheldHints say what to do about a resolver that hides the addresses that are
// asked for. Most private addresses are IPv4's, but not all.
func withheldHints(answers []Answer) []string {
	i := slices.IndexFunc(answers, func(a Answer) bool { return a.Withheld })
	if i < 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s answers like a resolver that withholds private addresses (DNS rebind protection): exempt the domain there (dnsmasq: rebind-domain-ok, unbound: private-domain), or ask the zone's own server with --dns-server", answers[i].Server)}
}

func named(name string, err error) *discovery.Error {
	var e *discovery.Error
	if !errors.As(err, &e) {
		return &discovery.Error{Kind: discovery.Retry, Msg: name, Err: err}
	}
	c := *e
	c.Msg = name + ": " + e.Msg
	return &c
}

func (h *Host) add(a Answer) {
	for _, rr := range a.Records {
		if ip := Addr(rr); ip.IsValid() {
			h.Addrs = append(h.Addrs, ip)
		}
	}
	slices.SortFunc(h.Addrs, netip.Addr.Compare)
	h.Addrs = slices.Compact(h.Addrs)
	h.TTL = max(h.TTL, a.TTL)
	if a.Alias != "" && a.Outcome == Found {
		h.Alias = a.Alias
	}
}

// Addr is the address of an A or AAAA record, IPv4 unmapped.
func Addr(rr dns.RR) netip.Addr {
	var ip netip.Addr
	switch rr := rr.(type) {
	case *dns.A:
		ip, _ = netip.AddrFromSlice(rr.A)
	case *dns.AAAA:
		ip, _ = netip.AddrFromSlice(rr.AAAA)
	}
	return ip.Unmap()
}

// Complete takes the hosts from the additional section of a, if that says all
// there is to know: an address for each name, the same families for all of
// them, and every family in which this host has addresses. A server may leave
// the AAAA records out where space or its ways are short; an IPv6 host that
// took such an answer for the whole might not find itself.
func (p *Pass) Complete(a Answer, names []string) (map[string]Host, bool) {
	out := map[string]Host{}
	for _, name := range names {
		out[hosturl.Canonical(name)] = Host{Name: hosturl.Canonical(name)}
	}
	for _, rr := range a.Additional {
		h, ok := out[canonical(rr.Header().Name)]
		if ok && rr.Header().Class == dns.ClassINET && Addr(rr).IsValid() && p.wants(rr.Header().Rrtype) {
			h.add(Answer{Records: []dns.RR{rr}, TTL: seconds(rr.Header().Ttl)})
			out[h.Name] = h
		}
	}
	for _, h := range out {
		has4 := slices.ContainsFunc(h.Addrs, netip.Addr.Is4)
		has6 := slices.ContainsFunc(h.Addrs, netip.Addr.Is6)
		if !has4 && !has6 || p.has4 && !has4 || p.has6 && !has6 {
			return nil, false
		}
		for _, other := range out {
			if has4 != slices.ContainsFunc(other.Addrs, netip.Addr.Is4) || has6 != slices.ContainsFunc(other.Addrs, netip.Addr.Is6) {
				return nil, false
			}
		}
	}
	return out, true
}

// doubled tells whether a name ends in the same labels twice, as
// etcd-1.example.com.example.com does.
func doubled(name string) bool {
	labels := strings.Split(name, ".")
	for n := 1; 2*n <= len(labels); n++ {
		end := labels[len(labels)-n:]
		if slices.Equal(end, labels[len(labels)-2*n:len(labels)-n]) {
			return true
		}
	}
	return false
}
