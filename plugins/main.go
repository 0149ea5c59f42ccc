package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// Main is the whole main function of a plugin: it reads the request, asks
// discover for the peers, prints the response and exits. It never returns.
//
// discover gives all peers or an error, never a part of them. Retryf and
// Configf make the errors that etcdinit acts upon; any other error is code
// internal. The context ends shortly before the plugin is killed.
func Main(discover func(context.Context, Request) ([]Peer, error)) {
	Info{}.Main(discover)
}

// Main is Main for a plugin that tells its name, version and parameters. An
// empty Name is the executable's, an empty Version that of the build.
func (i Info) Main(discover func(context.Context, Request) ([]Peer, error)) {
	if i.Name == "" {
		i.Name = filepath.Base(os.Args[0])
	}
	if i.Version == "" {
		i.Version = "unknown"
		if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
			i.Version = build.Main.Version
		}
	}
	os.Exit(serve(context.Background(), os.Stdin, os.Stdout, i, discover))
}

// reserve is the part of the timeout that is kept for printing the answer.
const reserve = 0.05

// serve answers one request and returns the exit status.
func serve(ctx context.Context, in io.Reader, out io.Writer, info Info, discover func(context.Context, Request) ([]Peer, error)) int {
	info.ContractVersions = []int{Version}
	resp := respond(ctx, in, info, discover)
	resp.Version = Version
	doc, err := json.Marshal(resp)
	if err == nil && len(doc) >= MaxResponse {
		err = fmt.Errorf("the answer has %d bytes, %d are allowed", len(doc), MaxResponse)
	}
	if err != nil {
		resp = Response{Version: Version, Error: asError(err)}
		if doc, err = json.Marshal(resp); err != nil {
			return 1
		}
	}
	if _, err := out.Write(append(doc, '\n')); err != nil || resp.Error != nil {
		return 1
	}
	return 0
}

func respond(ctx context.Context, in io.Reader, info Info, discover func(context.Context, Request) ([]Peer, error)) (resp Response) {
	defer func() {
		if r := recover(); r != nil {
			resp = Response{Error: asError(fmt.Errorf("panic: %v", r))}
		}
	}()
	var req Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("stdin is empty: this is a plugin of etcdinit, which writes a request there")
		}
		return Response{Error: asError(fmt.Errorf("read the request: %w", err))}
	}
	switch {
	case req.Verb == VerbInfo:
		return Response{Info: &info}
	case req.Version != Version:
		return Response{Error: asError(fmt.Errorf("the request is in version %d of the contract, this plugin speaks version %d", req.Version, Version))}
	case req.Verb != VerbDiscover:
		return Response{Error: asError(fmt.Errorf("unknown verb %q, there are info and discover", req.Verb))}
	}
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.Timeout*(1-reserve)*float64(time.Second)))
		defer cancel()
	}
	peers, err := discover(ctx, req)
	if err != nil {
		return Response{Error: asError(err)}
	}
	if peers == nil {
		peers = []Peer{}
	}
	return Response{Peers: peers}
}
