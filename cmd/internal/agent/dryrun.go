package agent

import "context"

// foretell is a dry run's act: what needs no write is done, everything else is
// only said.
func (a *agent) foretell(ctx context.Context, out Outcome) (done bool, err error) {
	switch out.Step {
	case StepFind:
		return false, a.find(ctx)
	case StepMeet:
		return false, a.meet(ctx)
	case StepProbe:
		return false, a.probeOwn(ctx)
	case StepWait:
		a.foreseen, a.remark = WouldWait, a.why(out)
	case StepConsult:
		return false, a.consult(ctx)
	case StepStage, StepPrepare, StepCommit, StepSeedAlone, StepAdmit:
		a.foreseen = WouldSeed
	case StepRelease, StepKeep:
		a.foreseen = WouldKeep
	case StepSetAside, StepClear, StepFeed:
		a.foreseen = WouldSeed
	case StepRevoke, StepRefuse, StepGiveUp:
		return true, a.refusal(ctx, out)
	}
	return true, nil
}
