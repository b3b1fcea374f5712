package attend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ServiceCommand is the command of the program that the service runs.
const ServiceCommand = "attend-service"

// patience is how long Attend waits for the host's certificate. A Machine may boot before the operator knows it. The
// operator accepts requests of a new Machine for the same duration.
const patience = 2 * time.Hour

// Options are the inputs of Attend and Serve.
type Options struct {
	Host    winos.Host
	Version string
	// Dir is the path of the RPC directory. Self is the path of the running program, which is in this directory.
	Dir, Self string
	Clock     clock.Clock
	// Pace has the pauses and time limits of the service. Its zero value is right for production.
	Pace Pace
}

// Attend reads an Attendance from `in`, gets the host's certificate, and installs and starts the service. It writes its
// progress to `out` as text. If the host has its certificate, Attend doesn't use the token. If the service runs as
// well, Attend changes nothing.
func Attend(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	facts, err := o.Host.System.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading the host's facts: %w", err)
	}
	if !facts.Admin {
		return errors.New("this command needs the rights of an administrator: run it in a PowerShell that was " +
			"started with \"Run as administrator\"")
	}
	if !contract.Within(o.Dir, o.Self) {
		return fmt.Errorf("this program is %s and must be in %s: use the command that the cluster printed", o.Self,
			o.Dir)
	}
	want, err := decode(in)
	if err != nil {
		return fmt.Errorf("reading the settings on standard input: %w", err)
	}
	services, p := o.Host.Services, rpcDir{o.Host.Files, o.Dir}
	installed, err := services.Get(ctx, contract.ServiceAttend)
	exists := err == nil
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("looking at service %s: %w", contract.ServiceAttend, err)
	}
	var was contract.Attendance
	_ = p.read(contract.HostStateFile, &was)
	if exists {
		if err = mayReplace(installed, was, want); err != nil {
			return err
		}
	}
	hasJoined := p.hasJoined(was, want)
	delays, reset := plan.Recovery()
	config := winos.ServiceConfig{Name: contract.ServiceAttend, Description: plan.Description(contract.ServiceAttend),
		Command: `"` + o.Self + `" ` + ServiceCommand, Recovery: delays, RecoveryReset: reset}
	if exists && hasJoined && plan.Equal(installed.ServiceConfig, config) && installed.State == winos.ServiceRunning {
		printLine(out, "Service %s is running already.", contract.ServiceAttend)
		return nil
	}
	printLine(out, "Joining this host to the cluster at %s.", want.APIServer)
	if exists {
		if err = services.Stop(ctx, contract.ServiceAttend); err != nil {
			return fmt.Errorf("stopping service %s: %w", contract.ServiceAttend, err)
		}
	}
	// Only administrators may write here, because the service runs the program as LocalSystem.
	for _, path := range []string{o.Dir, o.Self} {
		if err = p.files.Restrict(path); err != nil {
			return fmt.Errorf("restricting access to %s: %w", path, err)
		}
	}
	if !hasJoined {
		if err = p.enrol(ctx, o, want, out); err != nil {
			return err
		}
	}
	if err = start(ctx, services, config); err != nil {
		return err
	}
	printLine(out, "Service %s carries out the operator's calls. The rest of the join happens from the cluster; look "+
		"at the WindowsInstance there.", contract.ServiceAttend)
	return nil
}

func decode(in io.Reader) (a contract.Attendance, err error) {
	content, err := io.ReadAll(in)
	if err == nil {
		// Windows PowerShell may put a byte order mark before the text that it pipes to a program.
		err = json.Unmarshal(bytes.TrimPrefix(bytes.TrimSpace(content), []byte("\ufeff")), &a)
	}
	if err != nil || a.Token == "" {
		return a, errors.New("they are not valid JSON with a token") // the decoder's error may quote the token
	}
	return a, nil
}

// hasJoined reports whether the host already has the certificate for the Attendance `want`. `was` is the stored
// Attendance.
func (p rpcDir) hasJoined(was, want contract.Attendance) bool {
	pair, err := p.identity(was.UID).LoadCertificate()
	return err == nil && pair.Leaf.Subject.CommonName == contract.HostUserPrefix+was.UID &&
		(want.UID == was.UID || want.UID == "" && isSameCluster(was, want))
}

func isSameCluster(a, b contract.Attendance) bool { return a.APIServer == b.APIServer || a.CA == b.CA }

// mayReplace returns an error if another program installed the service, or if the service is for another cluster.
func mayReplace(installed winos.Service, was, want contract.Attendance) error {
	if !contract.IsManaged(installed.Description) {
		return fmt.Errorf("service %s exists, but this program did not install it", contract.ServiceAttend)
	}
	if was.APIServer != "" && !isSameCluster(was, want) {
		return fmt.Errorf("this host attends for another cluster, with the API server %[1]s. Remove its "+
			"WindowsInstance there first, and run this command again when service %[2]s is gone. If that cluster no "+
			"longer exists, run: sc.exe stop %[2]s; sc.exe delete %[2]s", was.APIServer, contract.ServiceAttend)
	}
	return nil
}

func start(ctx context.Context, services winos.Services, config winos.ServiceConfig) error {
	if err := services.Apply(ctx, config); err != nil {
		return fmt.Errorf("installing service %s: %w", contract.ServiceAttend, err)
	}
	if err := services.Start(ctx, contract.ServiceAttend); err != nil {
		return fmt.Errorf("starting service %s: %w", contract.ServiceAttend, err)
	}
	return nil
}

func printLine(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}
