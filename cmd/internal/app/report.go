package app

import (
	"bytes"
	"encoding/json"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// terminationLog is where Kubernetes looks for the reason for which a container
// ended, and reportLimit what it keeps of that, in bytes.
const (
	terminationLog = "/dev/termination-log"
	reportLimit    = 4096
)

// outcome is the report: the agent's result and the exit status.
type outcome struct {
	Message  string      `json:"message"`
	Status   exit.Status `json:"status"`
	Reason   string      `json:"reason,omitempty"`
	Commands []string    `json:"commands,omitempty"`
	*agent.Result
}

func (a *app) writeReport(r *agent.Result) error {
	if a.report == "" {
		return nil
	}
	err := agent.WriteReport(a.report, encodeReport(outcome{Message: r.Message, Result: r}))
	if err != nil {
		a.report = "" // it cannot tell its own failure
	}
	return err
}

// encodeReport fits the report into reportLimit bytes. It drops the timeline, the
// member list, the warnings and the commands, in this order and only as far as
// needed, and cuts the message last.
func encodeReport(o outcome) []byte {
	data := encode(o)
	if o.Result != nil {
		short := *o.Result
		for _, drop := range []func(){func() { short.Spans = nil }, func() { short.Members = nil }, func() { short.Warnings = nil }} {
			if len(data) <= reportLimit {
				return data
			}
			drop()
			o.Result = &short
			data = encode(o)
		}
	}
	if len(data) > reportLimit {
		o.Commands = nil
		data = encode(o)
	}
	for msg := []rune(o.Message); len(data) > reportLimit && len(msg) > 0; data = encode(o) {
		msg = msg[:len(msg)-min(len(msg), (len(data)-reportLimit)/4+1)] // no rune is longer than 4 bytes, some are escaped
		o.Message = string(msg) + "…"
	}
	return data
}

func encode(o outcome) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return []byte(`{"message":"the report could not be encoded"}`)
	}
	return buf.Bytes()
}
