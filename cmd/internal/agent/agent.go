// Package agent takes a node from etcd's static configuration to a data
// directory that etcd boots from.
package agent

import (
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// Config is everything an agent is told. It is complete before the agent
// starts: the agent reads no flag and no variable.
type Config struct {
	Etcd     *etcdconf.Config
	Registry discovery.Registry
	Source   string // discovery source URL
	Size     int    // members expected; 0 where the source knows

	Timeout    time.Duration // 0: for ever
	DNSServers []netip.AddrPort
	ResolvConf string
	PluginDirs []string

	SelfIP    netip.Addr
	SelfName  string
	Interface string

	Quorum  string   // QuorumAll or QuorumNone
	Without []string // members said to have never run
	Owner   *seed.Owner

	EnvFile    string // where the handoff goes; empty: nowhere
	ConfigOut  string
	ListenSelf bool

	Log *zap.Logger
	// OnWait, where set, is told what is being waited for.
	OnWait func(Wait)
}

// Values of Config.Quorum.
const (
	QuorumAll  = "all"
	QuorumNone = "none"
)

// Wait is what an agent waits for at this moment.
type Wait struct {
	For     string        // one phrase, "2 of 3 peers"
	Left    time.Duration // until the deadline; 0: there is none
	Next    time.Duration // until it looks again
	Attempt int
	Cause   string // why the last look was not enough
}

// Kind tells what an Error of this package means for the caller.
type Kind int

const (
	// Settings means that flags or configuration contradict each other (status 20).
	Settings Kind = iota + 1
	// Disagree means that peers disagree or stay silent (status 34).
	Disagree
	// Unsafe means that the cluster runs already (status 42).
	Unsafe
	// Foreign means another member's data (status 43).
	Foreign
	// Output means that the seed is there but the handoff could not be written (status 31).
	Output
)

// Error is a refusal: what was attempted, what was seen, what to do.
type Error struct {
	Kind Kind
	Msg  string
	Err  error // the cause, or nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Result is what an agent did, or would do on a dry run. Its JSON form is the
// machine-readable report.
type Result struct {
	Message   string        `json:"message"`
	Action    Action        `json:"action"`
	ClusterID string        `json:"clusterID"`
	MemberID  string        `json:"memberID"`
	Name      string        `json:"name"`
	DataDir   string        `json:"dataDir"`
	WALDir    string        `json:"walDir,omitempty"`
	EnvFile   string        `json:"envFile,omitempty"`
	ConfigOut string        `json:"configOut,omitempty"`
	Members   []seed.Member `json:"members,omitempty"`
	Warnings  []string      `json:"warnings,omitempty"`
	Spans     []Span        `json:"spans,omitempty"`
	Handoff   Handoff       `json:"-"`
	Plan      *seed.Plan    `json:"-"`
}

// Handoff is etcdconf's, named here for callers that only know the agent.
type Handoff = etcdconf.Handoff

// Action is what became of a data directory.
type Action string

const (
	// Seeded means that it was empty and is complete now.
	Seeded Action = "seeded"
	// Kept means that it was valid and ours, and no byte changed.
	Kept Action = "kept"
	// WouldSeed is what a dry run says of an empty directory.
	WouldSeed Action = "would seed"
	// WouldKeep is said of a valid directory.
	WouldKeep Action = "would keep"
	// WouldWait is what a dry run says while peers are missing or disagree.
	WouldWait Action = "would wait"
)

// Span is one step of a run, for the report's timeline.
type Span struct {
	Step  string    `json:"step"`
	Start time.Time `json:"start"`
	Ms    float64   `json:"ms"`
}

type agent struct {
	Config
	warnings []string
	spans    []Span
}

func newAgent(cfg Config) *agent {
	if cfg.OnWait == nil {
		cfg.OnWait = func(Wait) {}
	}
	return &agent{Config: cfg}
}

// warn says something once, in the log and in the report.
func (a *agent) warn(msg string) {
	a.Log.Warn(msg)
	a.warnings = append(a.warnings, msg)
}

// span measures a step: defer a.span("discover")().
func (a *agent) span(step string) func() {
	start := time.Now()
	return func() {
		a.spans = append(a.spans, Span{Step: step, Start: start, Ms: float64(time.Since(start).Microseconds()) / 1000})
	}
}
