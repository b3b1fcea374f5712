package attend

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ServiceCommand is the command of the program that the service runs.
const ServiceCommand = "attend-service"

const (
	// patience is how long Attend waits until the service carries out calls.
	patience = 10 * time.Minute
	look     = 200 * time.Millisecond
	// maxInput limits the Attendance in bytes. The CA bundle is the largest part.
	maxInput = 1 << 20
)

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

// Attend stores an Attendance from in, installs and starts the service, and waits until the host carries out calls. It
// writes its progress to out as text. If the service already runs with this Attendance, Attend only waits.
func Attend(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("this host has not joined within %s", patience))
	defer cancel()
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
	p := rpcDir{o.Host.Files, o.Dir}
	if err = p.install(ctx, o, want, out); err != nil {
		return err
	}
	return p.await(ctx, o.Host.Services, out)
}

// decode reads an Attendance in JSON and checks it.
func decode(in io.Reader) (a contract.Attendance, err error) {
	content, err := io.ReadAll(io.LimitReader(in, maxInput))
	if err == nil {
		// Windows PowerShell may put a byte order mark before the text that it pipes to a program.
		err = json.Unmarshal(bytes.TrimPrefix(bytes.TrimSpace(content), []byte("\ufeff")), &a)
	}
	if err != nil {
		return a, errors.New("they are not valid JSON") // the decoder's error may quote the token
	}
	server, err := url.Parse(a.APIServer)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return a, fmt.Errorf("apiServer %.100q is not an https URL", a.APIServer)
	case !x509.NewCertPool().AppendCertsFromPEM([]byte(a.CA)):
		return a, errors.New("ca contains no certificate")
	case a.Namespace == "" || a.Token == "" || a.Payload == "":
		return a, errors.New("namespace, token or payload is missing")
	}
	return a, nil
}

// install stores the Attendance, and installs and starts the service.
func (p rpcDir) install(ctx context.Context, o Options, want contract.Attendance, out io.Writer) error {
	services := o.Host.Services
	installed, err := services.Get(ctx, contract.ServiceAttend)
	exists := err == nil
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("looking at service %s: %w", contract.ServiceAttend, err)
	}
	next := record{Attendance: want, TokenDigest: contract.Digest([]byte(want.Token)), ByKey: want.UID == ""}
	var was record
	_ = p.read(contract.HostStateFile, &was)
	if exists {
		if err = mayReplace(installed, was, want); err != nil {
			return err
		}
	}
	if next.ByKey && was.TokenDigest == next.TokenDigest {
		next.UID = was.UID
	}
	same := was.UID == next.UID && was.TokenDigest == next.TokenDigest
	if _, err = p.identity(next.UID).LoadCertificate(); same && err == nil {
		next.Token = "" // the host has its certificate
	}
	config := serviceConfig(o.Self)
	var now progress
	_ = p.read(progressFile, &now)
	if exists && now.Attends && was == next && plan.Equal(installed.ServiceConfig, config) &&
		installed.State == winos.ServiceRunning {
		printLine(out, "Service %s is running already.", contract.ServiceAttend)
		return nil
	}
	printLine(out, "Installing service %s, which joins this host to the cluster at %s.", contract.ServiceAttend,
		want.APIServer)
	if exists {
		if err = services.Stop(ctx, contract.ServiceAttend); err != nil {
			return fmt.Errorf("stopping service %s: %w", contract.ServiceAttend, err)
		}
	}
	if err = p.prepare(o.Self, next, same); err != nil {
		return err
	}
	return start(ctx, services, config)
}

// mayReplace returns an error if another program installed the service, or if the host attends for another cluster.
func mayReplace(installed winos.Service, was record, want contract.Attendance) error {
	if !contract.IsManaged(installed.Description) {
		return fmt.Errorf("service %s exists, but this program did not install it", contract.ServiceAttend)
	}
	if was.APIServer != "" && was.APIServer != want.APIServer && was.CA != want.CA {
		return fmt.Errorf("this host attends for another cluster, with the API server %[1]s. Remove its "+
			"WindowsInstance there first, and run this command again when service %[2]s is gone. If that cluster no "+
			"longer exists, run: sc.exe stop %[2]s; sc.exe delete %[2]s", was.APIServer, contract.ServiceAttend)
	}
	return nil
}

// start installs and starts the service.
func start(ctx context.Context, services winos.Services, config winos.ServiceConfig) error {
	if err := services.Apply(ctx, config); err != nil {
		return fmt.Errorf("installing service %s: %w", contract.ServiceAttend, err)
	}
	if err := services.Start(ctx, contract.ServiceAttend); err != nil {
		return fmt.Errorf("starting service %s: %w", contract.ServiceAttend, err)
	}
	return nil
}

// prepare writes the record and deletes outdated files. First, it lets only administrators write to the RPC directory
// and the program, because the service runs the program as LocalSystem.
func (p rpcDir) prepare(self string, next record, same bool) error {
	for _, path := range []string{p.dir, self} {
		if err := p.files.Restrict(path); err != nil {
			return fmt.Errorf("restricting access to %s: %w", path, err)
		}
	}
	stale := []string{progressFile}
	if !same {
		stale = append(stale, certificateFile, keyFile)
	}
	for _, name := range stale {
		if err := p.files.Remove(p.path(name)); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	return p.write(contract.HostStateFile, next)
}

func serviceConfig(self string) winos.ServiceConfig {
	delays, reset := plan.Recovery()
	return winos.ServiceConfig{Name: contract.ServiceAttend, Description: plan.Description(contract.ServiceAttend),
		Command: `"` + self + `" ` + ServiceCommand, Recovery: delays, RecoveryReset: reset}
}

// await prints the service's progress until the service carries out calls.
func (p rpcDir) await(ctx context.Context, services winos.Services, out io.Writer) error {
	for last := ""; ; {
		var now progress
		err := p.read(progressFile, &now)
		switch {
		case err == nil && now.Failed:
			return errors.New(now.Text)
		case err == nil && now.Text != last:
			last = now.Text
			printLine(out, "%s", now.Text)
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, winos.ErrInUse):
			return err
		}
		if now.Attends {
			return nil
		}
		if _, err = services.Get(ctx, contract.ServiceAttend); errors.Is(err, winos.ErrNotFound) {
			return fmt.Errorf("service %s was removed: %s", contract.ServiceAttend, last)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return fmt.Errorf("%w. The service continues; its last step: %s", context.Cause(ctx), last)
		}
	}
}

func printLine(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}
