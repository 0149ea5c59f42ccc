// Package agent takes a node from etcd's static configuration to a data
// directory that etcd boots from.
package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
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

	Timeout    time.Duration // 0: no limit
	DNSServers []netip.AddrPort
	ResolvConf string
	PluginDirs []string

	SelfIP    netip.Addr
	SelfPort  uint16 // the port beside SelfIP in the records; 0: not told
	SelfName  string
	Interface string // see discovery.LocalAddrs
	// WaitForSelf makes Discover wait for this node's entry, as Init does.
	WaitForSelf bool

	Quorum  string   // QuorumAll or QuorumNone
	Without []string // members that the roster leaves out
	Owner   *seed.Owner

	IfRunning    IfRunning     // what an empty disk does where its cluster runs
	ReplaceAfter time.Duration // how long a lost disk must be seen before its member is replaced
	RequireMark  string        // a file that the root of a data directory must have before anything is seeded
	EtcdVersion  string        // of the etcd that is going to run here; "": not known
	// Admit reaches a running cluster on its client ports; endpoints are URLs, dial
	// reaches a host where discovery found it.
	Admit func(endpoints []string, dial rendezvous.DialFunc) (Cluster, error)

	Restore *Restore // what a birth begins with; nil: nothing

	// Again are the commands that start this run and etcd again, for a refusal's
	// way out; none where that happens by itself.
	Again []string
	// Look are the commands that show what discovery says now, and write nothing.
	Look []string

	EnvFile    string // where the handoff goes; empty: nowhere
	ConfigOut  string
	ListenSelf bool
	Report     string // where the caller will write its report; only looked at here

	// Pod: this is a container of Kubernetes. It is only for hints.
	Pod bool

	Log *zap.Logger
	// OnWait, where set, is told what is being waited for. It is called from one
	// goroutine at a time.
	OnWait func(Wait)

	localAddrs func(iface string) ([]netip.Addr, error) // nil: discovery.LocalAddrs
	hostname   func() (string, error)                   // nil: os.Hostname
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
	Rows    []WaitRow
}

// WaitRow is one peer that is waited for.
type WaitRow struct {
	Name, URL string
	State     string // in a word or two
	Why       string
	Since     time.Time // since when it is in that state
}

// Result is what an agent did, or would do on a dry run. Its JSON form is the
// machine-readable report.
type Result struct {
	Message   string        `json:"message"`
	Action    Action        `json:"action"`
	ClusterID string        `json:"clusterID"` // empty for a birth that has not been agreed on
	MemberID  string        `json:"memberID"`
	DiskID    seed.DiskID   `json:"diskID,omitempty"`
	Name      string        `json:"name"`
	Learner   bool          `json:"learner,omitempty"`
	DataDir   string        `json:"dataDir"`
	WALDir    string        `json:"walDir,omitempty"`
	EnvFile   string        `json:"envFile,omitempty"`
	ConfigOut string        `json:"configOut,omitempty"`
	Members   []seed.Member `json:"members,omitempty"`
	// Restored is the snapshot that the member was born with.
	Restored *seed.Content `json:"restored,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	Spans    []Span        `json:"spans,omitempty"`
	Handoff  Handoff       `json:"-"`
	Plan     *seed.Plan    `json:"-"`
}

// Handoff is etcdconf's, named here for callers that only know the agent.
type Handoff = etcdconf.Handoff

// Action is what became of a data directory.
type Action string

const (
	// Seeded is an empty directory that is complete now.
	Seeded Action = "seeded"
	// Kept is a directory of which no byte changed, unless its mark was removed.
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

// agent is one run. Its fields are what was observed and done so far; the one
// goroutine that runs the loop owns them.
type agent struct {
	Config
	dry      bool
	warnings []string
	spans    []Span
	told     map[string]bool // warnings that were given

	waiting *lastWait
	since   map[string]WaitRow // by name: what a peer was last, and since when

	state    *seed.State                // the directory at the last look
	sight    atomic.Pointer[seed.Sight] // of state; also read where peers are answered
	disk     Disk                       // what state means
	released bool                       // this run has removed the mark
	seeded   bool                       // this run has written the seed

	found   *Found       // discovery's last whole answer with this node in it; nil: none
	plan    *seed.Plan   // of an empty directory: what it would hold; of a pending one: what it holds
	stored  bool         // plan is the directory's, not discovery's
	fed     bool         // it was tried to feed this joining member
	staged  *seed.Staged // the snapshot to be born with; nil: none is here
	records Records
	other   error  // RecordsOther: the refusal; RecordsNobody: what discovery said
	remark  string // for the message of a restart

	lookout  *lookout            // looks the records up while the agent waits
	barrier  *rendezvous.Barrier // nil: nobody is answered
	foreseen Action              // of a dry run
	met      time.Time           // when the barrier was opened
	view     rendezvous.View
	asked    bool          // view is of a round since the last step
	began    time.Duration // when that round began, since boot
	pause    time.Duration // the last wait for news
	cluster  clusterView   // what a running cluster has said
	proof    pendingProof  // for the words of a roster that cannot be completed
	locked   time.Time     // since when another etcdinit works in the directory
	// blocked is why the peers could not be answered at the last try; nil: they can.
	blocked *rendezvous.TakenError
	checked bool // this node lets the run write what it has to
}

// lastWait is what was told last of a wait; nothing where a step was made since.
type lastWait struct {
	sync.Mutex
	wait Wait
}

func (l *lastWait) forget() {
	l.Lock()
	defer l.Unlock()
	l.wait = Wait{}
}

// last is what was waited for, and why.
func (l *lastWait) last() (what, why string) {
	l.Lock()
	defer l.Unlock()
	return l.wait.For, l.wait.Cause
}

func newAgent(cfg Config) *agent {
	onWait := cfg.OnWait
	last := &lastWait{}
	cfg.OnWait = func(w Wait) {
		last.Lock()
		defer last.Unlock()
		last.wait = w
		if onWait != nil {
			onWait(w)
		}
	}
	if cfg.localAddrs == nil {
		cfg.localAddrs = discovery.LocalAddrs
	}
	if cfg.hostname == nil {
		cfg.hostname = os.Hostname
	}
	return &agent{Config: cfg, told: make(map[string]bool), waiting: last, since: make(map[string]WaitRow)}
}

// configured tells what some etcd reads in another way than others.
func (a *agent) configured() {
	for _, w := range a.Etcd.Warnings {
		a.warn(w)
	}
}

// Init gives this node its data directory and writes the handoff. With dry it
// decides and writes nothing.
//
// It is one loop: observe, decide, act, until an act ends it.
func Init(ctx context.Context, cfg Config, dry bool) (_ *Result, err error) {
	a := newAgent(cfg)
	a.dry = dry
	a.configured()
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	defer func() { err = a.leftBehind(a.unfound(a.close(err))) }()
	for err = a.sweep(); err != nil; err = a.sweep() {
		if err = a.elbow(ctx, err); err != nil {
			return nil, err
		}
	}
	for done := false; !done; {
		if err = a.observe(ctx); err != nil {
			return nil, err
		}
		done, err = a.step(ctx, Decide(a.input(expired(ctx))))
		switch {
		case err == nil:
			a.locked = time.Time{}
		case seed.Locked(err):
			done, err = false, a.elbow(ctx, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return a.result()
}

// step looks at what is to be written where that is due, and acts.
func (a *agent) step(ctx context.Context, out Outcome) (done bool, err error) {
	if out.Step != StepRefuse && (!a.checked || out.Step.writes()) {
		if err := a.writable(); err != nil {
			return false, err
		}
		a.checked = true
	}
	return a.act(ctx, out)
}

// act does one step. It reports whether the run is done.
func (a *agent) act(ctx context.Context, out Outcome) (done bool, err error) {
	if a.dry {
		return a.foretell(ctx, out)
	}
	if expired(ctx) && out.Step != StepRefuse && out.Step != StepKeep && out.Step != StepRevoke {
		return true, a.tooLate(ctx, out.Step)
	}
	if out.Step != StepWait {
		a.waiting.forget()
	}
	switch out.Step {
	case StepFind:
		return false, a.find(ctx)
	case StepMeet:
		return false, a.meet(ctx)
	case StepProbe:
		return false, a.probeOwn(ctx)
	case StepWait:
		return false, a.wait(ctx, out)
	case StepStage:
		return false, a.stageSnapshot(ctx)
	case StepPrepare:
		return false, a.hushed(a.prepare)
	case StepCommit:
		return false, a.hushed(func() error { return a.commit(ctx) })
	case StepSeedAlone:
		return false, a.seedAlone(ctx, out)
	case StepRelease:
		return false, a.hushed(func() error { return a.release(out) })
	case StepConsult:
		return false, a.consult(ctx)
	case StepAdmit:
		return false, a.admit(ctx, out)
	case StepFeed:
		return false, a.feed(ctx)
	case StepClear:
		return false, a.clear(ctx)
	case StepSetAside:
		return false, a.setAside()
	case StepGiveUp:
		return a.giveUp(ctx, out)
	case StepRevoke:
		return true, a.hushed(func() error { return a.revoke(out) })
	case StepKeep:
		a.farewell(ctx)
		return true, nil
	case StepRefuse:
		return true, a.refusal(ctx, out)
	}
	return true, fmt.Errorf("no act for the step %q", out.Step)
}

// hushed makes a step that changes the directory. Peers that ask meanwhile hear of
// the directory that it leaves.
func (a *agent) hushed(step func() error) error {
	if a.barrier == nil {
		return step()
	}
	return a.barrier.Act(step)
}

// input is what is known, for the decision.
func (a *agent) input(expired bool) Input {
	in := Input{
		Disk: a.disk, Records: a.records, Asked: a.asked, View: a.view, Running: a.cluster.says, Expired: expired, Unmarked: a.unmarked(), Restoring: a.restoring(),
		Policy: Policy{AskNobody: a.Quorum == QuorumNone, Without: a.Without, Existing: a.Etcd.InitialClusterState == "existing", IfRunning: a.IfRunning},
	}
	in.Running.Welcome = a.cluster.welcome
	if a.plan != nil {
		in.Members = len(a.plan.Members)
		if !a.asked {
			in.View.Plan = meetingPlan(a.plan)
		}
	}
	return in
}

// close frees what the run holds.
func (a *agent) close(err error) error {
	if a.lookout != nil {
		a.lookout.stop()
	}
	a.cluster.close(a.Log)
	if a.barrier == nil {
		return err
	}
	if cerr := a.barrier.Close(); err == nil && cerr != nil {
		return fmt.Errorf("free the listen addresses: %w", cerr)
	}
	return err
}

// warn says something once, in the log and in the report.
func (a *agent) warn(msg string) {
	if a.told[msg] {
		return
	}
	a.told[msg] = true
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

// settings is a refusal of flags or configuration.
func settings(reason, msg string, err error) error {
	return &exit.Error{Status: exit.Config, Reason: reason, Msg: msg, Err: err}
}
