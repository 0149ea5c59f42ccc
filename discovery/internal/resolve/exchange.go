package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
)

// udpSize is what we accept in one datagram: it passes every path unfragmented.
const udpSize = 1232

// ednsPatience is how long a question with EDNS0 may stay without answer before it
// is asked without, too.
const ednsPatience = 600 * time.Millisecond

// failure is why a server's answer is none.
type failure struct {
	server  netip.AddrPort
	text    string
	silent  bool // no answer in time: worth asking once more
	refused bool // nothing listens there
	rcode   int  // of an answer that is none, else -1

	malformed bool // an answer came that nobody can read
}

func (f *failure) Error() string { return f.text }

// exchange asks one server one question and returns its answer whole: with
// EDNS0, without it where the server does not know it or something on the way
// drops it, over TCP where UDP is too small.
func (p *Pass) exchange(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, *failure) {
	plain := new(dns.Msg)
	plain.SetQuestion(dns.Fqdn(name), qtype)
	var msg *dns.Msg
	var f *failure
	if p.withoutEDNS(server) {
		msg, f = p.ask(ctx, server, plain, nil)
	} else {
		q := plain.Copy()
		q.SetEdns0(udpSize, false)
		msg, f = p.ask(ctx, server, q, plain)
		if why := mistaken(msg, f); why != "" {
			p.log.Debug("asking without EDNS0", zap.Stringer("server", server), zap.String("seen", why))
			msg, f = p.ask(ctx, server, plain, nil)
		}
	}
	switch {
	case f != nil:
		return nil, f
	case misplacedOPT(msg):
		return nil, &failure{server: server, rcode: -1, text: fmt.Sprintf("malformed answer from %s (an OPT record, of EDNS0, among the answers)", server)}
	case msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError:
		return nil, &failure{server: server, rcode: msg.Rcode, text: fmt.Sprintf("%s from %s", rcode(msg.Rcode), server)}
	case referral(msg):
		return nil, &failure{server: server, rcode: -1, text: fmt.Sprintf("referral from %s, which neither serves the zone nor looks further", server)}
	}
	return msg, nil
}

// mistaken is why a server seems not to understand EDNS0; empty where it does.
func mistaken(msg *dns.Msg, f *failure) string {
	switch {
	case f != nil && f.malformed:
		return f.text
	case f != nil:
		return ""
	case msg.Rcode == dns.RcodeFormatError || msg.Rcode == dns.RcodeNotImplemented || msg.Rcode == dns.RcodeBadVers:
		return rcode(msg.Rcode)
	case misplacedOPT(msg):
		return "an OPT record among the answers"
	}
	return ""
}

// misplacedOPT tells whether a server has copied the question's OPT record to
// where none can be: then the sections are shifted, and no record counts.
func misplacedOPT(msg *dns.Msg) bool {
	isOPT := func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT }
	return slices.ContainsFunc(msg.Answer, isOPT) || slices.ContainsFunc(msg.Ns, isOPT)
}

func rcode(code int) string {
	if s, ok := dns.RcodeToString[code]; ok {
		return s
	}
	return fmt.Sprintf("RCODE%d", code)
}

// referral is the answer of a server that points elsewhere: NOERROR, no
// record, name servers but no SOA.
func referral(msg *dns.Msg) bool {
	if msg.Rcode != dns.RcodeSuccess || len(msg.Answer) > 0 || msg.Authoritative {
		return false
	}
	ns := false
	for _, rr := range msg.Ns {
		switch rr.(type) {
		case *dns.SOA:
			return false
		case *dns.NS:
			ns = true
		}
	}
	return ns
}

// ask sends q over UDP, and over TCP if the answer does not fit or cannot be
// read. The truncated part is never looked at. plain, where there is one, is sent
// too if q stays without answer for a while.
func (p *Pass) ask(ctx context.Context, server netip.AddrPort, q, plain *dns.Msg) (*dns.Msg, *failure) {
	msg, err := p.roundTrip(ctx, server, q, plain, "udp")
	if plain != nil && msg != nil && msg.Id == plain.Id {
		p.setWithoutEDNS(server)
		q = plain
	}
	if err == nil && !msg.Truncated {
		return msg, nil
	}
	why := "answer truncated (TC=1)"
	var bad *malformed
	if err != nil {
		if !errors.As(err, &bad) {
			return nil, p.failed(ctx, server, err, "")
		}
		why = bad.Error()
	}
	msg, err = p.roundTrip(ctx, server, q, nil, "tcp")
	if err == nil && msg.Truncated {
		err = errors.New("truncated as well")
	}
	if err != nil {
		f := p.failed(ctx, server, err, fmt.Sprintf("%s, TCP to %s failed: ", why, server))
		f.malformed = bad != nil
		return nil, f
	}
	return msg, nil
}

// failed words what went wrong on the way.
func (p *Pass) failed(ctx context.Context, server netip.AddrPort, err error, prefix string) *failure {
	f := &failure{server: server, rcode: -1}
	cause := err.Error()
	var sys *os.SyscallError
	switch {
	case isTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		f.silent = prefix == ""
		cause = fmt.Sprintf("no answer within %s", p.timeout)
		if over(ctx) {
			cause = "no answer before the time was up"
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		f.refused = true
		cause = "connection refused"
	case errors.As(err, &sys):
		cause = sys.Err.Error()
	}
	if prefix != "" {
		f.text = prefix + cause
	} else {
		f.text = fmt.Sprintf("%s from %s", cause, server)
		if !f.silent {
			f.text = fmt.Sprintf("%s: %s", server, cause)
		}
	}
	return f
}

// malformed is an answer that cannot be read.
type malformed struct{ err error }

func (m *malformed) Error() string {
	return "malformed answer (" + strings.TrimPrefix(m.err.Error(), "dns: ") + ")"
}

func (m *malformed) Unwrap() error { return m.err }

// roundTrip sends q and waits for its answer. Over UDP, plain is sent as well
// where q has no answer yet when half of the time of one with EDNS0 is over, and
// whichever is answered first counts: a middlebox may drop what has EDNS0, and
// say nothing.
func (p *Pass) roundTrip(ctx context.Context, server netip.AddrPort, q, plain *dns.Msg, network string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	start := time.Now()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: c, UDPSize: dns.DefaultMsgSize}
	defer func() {
		if cause := conn.Close(); cause != nil {
			p.log.Debug("closed a DNS connection", zap.NamedError("cause", cause))
		}
	}()
	// Whatever ends the context ends the read.
	stop := context.AfterFunc(ctx, func() {
		if cause := c.SetDeadline(time.Unix(1, 0)); cause != nil {
			p.log.Debug("ended a DNS exchange", zap.NamedError("cause", cause))
		}
	})
	defer stop()
	q.Id = dns.Id()
	err = conn.WriteMsg(q)
	if err != nil {
		return nil, err
	}
	questions := []*dns.Msg{q}
	if plain != nil {
		for plain.Id = dns.Id(); plain.Id == q.Id; {
			plain.Id = dns.Id()
		}
		raw, cause := plain.Pack()
		if cause != nil {
			return nil, cause
		}
		questions = append(questions, plain)
		late := time.AfterFunc(min(ednsPatience, p.timeout/2), func() {
			if _, cause := c.Write(raw); cause != nil {
				p.log.Debug("asked without EDNS0 as well", zap.NamedError("cause", cause))
			}
		})
		defer late.Stop()
	}
	msg, err := receive(conn, questions, network == "udp")
	fields := []zap.Field{
		zap.String("name", q.Question[0].Name), zap.String("type", dns.TypeToString[q.Question[0].Qtype]),
		zap.Stringer("server", server), zap.String("net", network), zap.Duration("took", time.Since(start)),
	}
	if err != nil {
		p.log.Debug("DNS exchange without an answer", append(fields, zap.NamedError("cause", err))...)
		return nil, err
	}
	p.log.Debug("DNS exchange", append(fields, zap.String("rcode", rcode(msg.Rcode)), zap.Int("answers", len(msg.Answer)))...)
	return msg, nil
}

// receive reads until the answer to one of the questions comes. On UDP whatever else arrives is
// somebody else's, or a forgery, and passed over.
func receive(conn *dns.Conn, questions []*dns.Msg, udp bool) (*dns.Msg, error) {
	for {
		raw, err := conn.ReadMsgHeader(nil)
		if err != nil {
			if udp && errors.Is(err, dns.ErrShortRead) {
				continue
			}
			return nil, err
		}
		msg := new(dns.Msg)
		err = msg.Unpack(raw)
		asked := func(q *dns.Msg) bool { return msg.Id == q.Id }
		if slices.ContainsFunc(questions, asked) && msg.Response && err != nil {
			if msg.Truncated { // cut in the middle of a record, and says so
				return msg, nil
			}
			return nil, &malformed{err}
		}
		if err == nil && slices.ContainsFunc(questions, func(q *dns.Msg) bool { return answers(msg, q) }) {
			return msg, nil
		}
		if !udp {
			return nil, &malformed{errors.New("it answers another question")}
		}
	}
}

// answers tells whether msg answers q. A server that could not read the
// question may leave it out.
func answers(msg, q *dns.Msg) bool {
	if msg.Id != q.Id || !msg.Response || msg.Opcode != dns.OpcodeQuery {
		return false
	}
	if len(msg.Question) == 0 {
		return msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError
	}
	a, b := msg.Question[0], q.Question[0]
	return len(msg.Question) == 1 && strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

// over tells whether ctx is done, or will be in this instant: a connection may
// see the deadline pass before the context's timer does.
func over(ctx context.Context) bool {
	t, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(t) <= 0
}
