package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
)

// udpSize is what we accept in one datagram: it passes every path unfragmented.
const udpSize = 1232

// failure is why a server's answer is none.
type failure struct {
	server  netip.AddrPort
	text    string
	silent  bool // no answer in time: worth asking once more
	refused bool // nothing listens there
	rcode   int  // of an answer that is none, else -1
}

func (f *failure) Error() string { return f.text }

// exchange asks one server one question and returns its answer whole: with
// EDNS0, without it where the server does not know it, over TCP where UDP is
// too small.
func (p *Pass) exchange(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, *failure) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	q.SetEdns0(udpSize, false)
	msg, f := p.ask(ctx, server, q)
	if f == nil && (msg.Rcode == dns.RcodeFormatError || msg.Rcode == dns.RcodeNotImplemented || msg.Rcode == dns.RcodeBadVers) {
		plain := new(dns.Msg)
		plain.SetQuestion(dns.Fqdn(name), qtype)
		msg, f = p.ask(ctx, server, plain)
	}
	switch {
	case f != nil:
		return nil, f
	case msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError:
		return nil, &failure{server: server, rcode: msg.Rcode, text: fmt.Sprintf("%s from %s", rcode(msg.Rcode), server)}
	case referral(msg):
		return nil, &failure{server: server, rcode: -1, text: fmt.Sprintf("referral from %s, which neither serves the zone nor looks further", server)}
	}
	return msg, nil
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
// read. The truncated part is never looked at.
func (p *Pass) ask(ctx context.Context, server netip.AddrPort, q *dns.Msg) (*dns.Msg, *failure) {
	msg, err := p.roundTrip(ctx, server, q, "udp")
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
	msg, err = p.roundTrip(ctx, server, q, "tcp")
	if err == nil && msg.Truncated {
		err = errors.New("truncated as well")
	}
	if err != nil {
		return nil, p.failed(ctx, server, err, fmt.Sprintf("%s, TCP to %s failed: ", why, server))
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

func (p *Pass) roundTrip(ctx context.Context, server netip.AddrPort, q *dns.Msg, network string) (*dns.Msg, error) {
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
	msg, err := receive(conn, q, network == "udp")
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

// receive reads until the answer to q comes. On UDP whatever else arrives is
// somebody else's, or a forgery, and passed over.
func receive(conn *dns.Conn, q *dns.Msg, udp bool) (*dns.Msg, error) {
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
		if msg.Id == q.Id && msg.Response && err != nil {
			if msg.Truncated { // cut in the middle of a record, and says so
				return msg, nil
			}
			return nil, &malformed{err}
		}
		if err == nil && answers(msg, q) {
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
