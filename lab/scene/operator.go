package scene

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// operatorToken is the lifetime of the operator's token. No lab runs longer than this.
const operatorToken = 24 * time.Hour

// Flags that the lab sets itself. It ignores their values in the Deployment.
const (
	flagPayload = "--payload-dir"
	flagMetrics = "--metrics-bind-address"
	flagHealth  = "--health-probe-bind-address"
)

// Operator runs the operator's program as a process. The process has the rights of the service account in the
// manifests.
type Operator struct {
	// Log is the path of the file with the output of all runs.
	Log string
	// Health is the address of the operator's probes.
	Health string
	// Metrics is the address of the operator's metrics. It is empty unless Options.Metrics is set.
	Metrics string
	// PayloadServer is the address where nodes fetch the payload. It doesn't change when the operator restarts.
	PayloadServer string

	confinement *confinement
	binary      string
	payload     string
	args        []string
	env         []string
	// condition is the name of the OperatorCondition. bundled are the operator's flags in the bundle. Both are empty
	// without OLM.
	condition string
	bundled   []string
	cmd       *exec.Cmd
	ended     chan error
	// Starts counts how many times the operator started.
	Starts atomic.Int32
}

func (s *Scene) newOperator(ctx context.Context) (*Operator, error) {
	var err error
	if s.payload, err = s.payloadDir(); err != nil {
		return nil, err
	}
	config, kubeconfig, err := s.Cluster.ServiceAccountConfig(ctx, s.options.Namespace,
		contract.OperatorServiceAccount, operatorToken)
	if err == nil && s.options.Front != nil {
		kubeconfig, err = cluster.Kubeconfig(s.options.Front(config))
	}
	if err != nil {
		return nil, fmt.Errorf("getting the operator's credential: %w", err)
	}
	o := &Operator{
		Log: filepath.Join(s.Dir, "operator.log"), payload: s.payload,
		env: []string{"PATH=" + os.Getenv("PATH"), "WATCH_NAMESPACE=" + s.options.Namespace,
			"POD_NAME=windows-machine-config-operator-lab"},
	}
	o.condition, o.bundled = s.options.OLM, s.bundled
	if o.confinement, err = newConfinement(s.Dir); err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, "operator.kubeconfig")
	if err = o.confinement.secret(path, kubeconfig); err != nil {
		return nil, fmt.Errorf("writing the operator's kubeconfig: %w", err)
	}
	if o.Health, err = s.holdPort(ctx); err != nil {
		return nil, err
	}
	metrics := "0"
	if s.options.Metrics {
		if o.Metrics, err = s.holdPort(ctx); err != nil {
			return nil, err
		}
		metrics = o.Metrics
	}
	o.PayloadServer = s.payloadServer
	if err = o.SetBinary(s.options.Operator); err != nil {
		return nil, err
	}
	o.args = []string{
		"--kubeconfig", path, flagMetrics, metrics, flagHealth, o.Health,
		"--payload-bind-address", o.PayloadServer, "--payload-advertise", o.PayloadServer,
	}
	if s.options.Debug {
		o.args = append(o.args, "--debugLogging")
	}
	o.args = append(o.args, s.options.Arguments...)
	return o, nil
}

// Start starts the operator and returns when it is healthy.
func (o *Operator) Start(ctx context.Context) error {
	if err := o.Launch(ctx); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			select {
			case err := <-o.ended:
				o.ended <- err
				return false, fmt.Errorf("the operator ended: %w; the end of its log: %s", err, o.Tail(2000))
			default:
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Health+"/healthz", nil)
			if err != nil {
				return false, err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false, nil //nolint:nilerr // it does not listen yet
			}
			return response.StatusCode == http.StatusOK, response.Body.Close()
		})
	if err != nil {
		return fmt.Errorf("waiting for the operator to be healthy: %w", err)
	}
	return nil
}

// Launch starts the operator and doesn't wait until it is healthy.
func (o *Operator) Launch(ctx context.Context) error {
	output, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the operator's log: %w", err)
	}
	defer output.Close()
	payload, err := o.confinement.lend(o.payload)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.binary,
		append(slices.Concat(o.args, o.bundled), flagPayload, payload)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = slices.Clone(o.env), output, output
	if o.condition != "" {
		cmd.Env = append(cmd.Env, "OPERATOR_CONDITION_NAME="+o.condition)
	}
	o.confinement.apply(cmd)
	ended, err := cluster.StartChild(cmd)
	if err != nil {
		return fmt.Errorf("starting the operator: %w", err)
	}
	o.cmd = cmd
	o.Starts.Add(1)
	o.ended = make(chan error, 1)
	done := o.ended
	go func() { done <- ended() }()
	return nil
}

// SetPayload sets the directory of the payload for the next start of the operator.
func (o *Operator) SetPayload(dir string) { o.payload = dir }

// SetBinary sets the path of the program for the next start of the operator.
func (o *Operator) SetBinary(path string) (err error) {
	o.binary, err = o.confinement.lend(path)
	return err
}

// PID returns the process ID of the operator. It returns 0 if the operator isn't running.
func (o *Operator) PID() int {
	if o.cmd == nil {
		return 0
	}
	return o.cmd.Process.Pid
}

// Ended returns a channel. The channel receives an error if the process ends and neither Stop nor Kill ended it.
func (o *Operator) Ended() <-chan error { return o.ended }

// Kill ends the process like kill -9.
func (o *Operator) Kill() error { return o.end(syscall.SIGKILL) }

// Stop ends the process in the way that Kubernetes ends a container: it sends SIGTERM, and kills the process after the
// grace period. It may be called more than once.
func (o *Operator) Stop() error { return o.end(syscall.SIGTERM) }

// grace is the terminationGracePeriodSeconds of the Deployment.
const grace = 10 * time.Second

func (o *Operator) end(signal syscall.Signal) error {
	if o.cmd == nil {
		return nil
	}
	if runtime.GOOS == "windows" {
		signal = syscall.SIGKILL // on Windows, Go can't send other signals
	}
	if err := o.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the operator: %w", err)
	}
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	select {
	case <-o.ended: //nolint:errcheck // ended on request
		o.cmd = nil
		return nil
	case <-timeout.C:
	}
	if err := o.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing the operator: %w", err)
	}
	<-o.ended //nolint:errcheck // ended on request
	o.cmd = nil
	return fmt.Errorf("the operator did not end within %s of signal %s", grace, strconv.Itoa(int(signal)))
}

// Tail returns the last bytes of the operator's log.
func (o *Operator) Tail(bytes int) string {
	content, err := os.ReadFile(o.Log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-bytes):])
}
