package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/logs"
	"github.com/windows-nodes/wmco/internal/daemon/mirror"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/report"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// openRetry is the pause between attempts to read the daemon's kubeconfig and certificate. Until an attempt succeeds,
// the daemon reconciles the host without an API server.
const openRetry = time.Minute

// lifetime is the validity of a renewed certificate. The operator requests the same validity for the first certificate.
const lifetime = 14 * 24 * time.Hour

// service is the daemon's service.
type service struct {
	Options
	namespace string
}

func controllerCommand(o Options) *cobra.Command {
	s := service{Options: o}
	cmd := &cobra.Command{
		Use: "controller", Short: "Keep this node as the cluster says; the service manager runs this",
		Args: cobra.NoArgs,
		Long: `Keep this node as the cluster says, until stopped.

It acts as system:wicd-node:<node>, with the certificate that handover stored and that it renews by itself.
While the API server can't be reached, it goes on with the last manifest that it read.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.RunService(cmd.Context(), contract.ServiceDaemon, func(ctx context.Context, running func()) error {
				return s.run(ctx, running)
			})
		},
	}
	cmd.Flags().StringVar(&s.namespace, "namespace", contract.OperatorNamespace,
		"`namespace` of the services manifests")
	return cmd
}

// run runs the service until ctx ends. It starts to reconcile when all running verbs have ended.
func (s *service) run(ctx context.Context, running func()) (err error) {
	log := newJournal(s.Options, contract.PathDaemonLog)
	defer func() {
		if errors.Is(err, selfupdate.ErrReplaced) {
			log.Info("ended, so that the service manager starts the other program")
		} else if err != nil {
			log.Error(err, "ended") // the standard error of a service is lost
		}
		err = errors.Join(err, log.writer.Close())
	}()
	ctx = logr.NewContext(ctx, log.Logger)
	// Report the start first, and wait for running verbs afterwards: the verb handover may have started this service,
	// and waits until the service manager reports that the service is running.
	running()
	digest, err := ownProgram(ctx, s.Options)
	if err != nil {
		return err
	}
	afterOthers(ctx, s.Host.Programs)
	if ctx.Err() != nil {
		return nil // the service was stopped; after an error, the service manager would start it again
	}
	stateFile, err := state.Read(s.Host.Files)
	if err != nil {
		return err
	}
	if stateFile.NodeName == "" {
		return s.reportLost(ctx)
	}
	program := selfupdate.New(s.Host, stateFile, digest)
	return program.Run(ctx, func(ctx context.Context) error { return s.keep(ctx, log, stateFile, program) })
}

// `keep` reconciles the host until ctx ends or this process must end.
func (s *service) keep(ctx context.Context, log *journal, stateFile *state.File,
	program *selfupdate.Program) (err error) {
	// Create missing directories: an older daemon may not have created all of them, and a user may have removed the log
	// directory. If a directory can't be created, the code that uses the directory reports the problem.
	missing := errors.Join(stateFile.Tidy(), state.Ensure(s.Host.Files, stateFile, state.Directories()...))
	log.Info("started", "version", s.Version, "node", stateFile.NodeName)
	if missing != nil {
		log.Info("a directory is missing", "detail", missing.Error())
	}
	rotator := logs.NewRotator(s.Host)
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { rotator.Run(ctx) })
	defer background.Wait()
	defer stop()
	reporter := mirror.NewReporter(mirror.ReporterOptions{NodeName: stateFile.NodeName, Files: s.Host.Files,
		Clock: hostClock{system: s.Host.System}})
	background.Go(func() { reporter.Write(ctx) })
	reports := report.New(s.Host, s.Version)
	background.Go(func() { reports.Run(ctx) })
	pulls := &mirror.Service{Network: s.Host.Network, Reporter: reporter}
	defer pulls.Close()
	r := runner{service: s, state: stateFile, registry: pulls, reporter: reporter, program: program,
		report: reports.Tell,
		follow: func(m contract.Manifest) {
			log.configure(m.Daemon)
			rotator.Follow(m)
		}}
	for ctx.Err() == nil {
		api := r.open(ctx)
		if api == nil {
			api, err = r.alone(ctx)
		}
		if api != nil {
			err = r.withAPIServer(ctx, api)
		}
		if errors.Is(err, reconcile.ErrReleased) {
			cleanReleased(ctx, s.Options, stateFile)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	log.Info("stopped")
	return nil
}

// reportLost records on the Node that the state file is lost, and removes the Node's revision annotation, so that the
// operator joins the host again. Its error always says that the file is lost.
func (s *service) reportLost(ctx context.Context) error {
	lost := contract.NewProblem(contract.ReasonStateLost, "%s is missing or damaged", contract.PathState)
	api := s.open(ctx)
	if api == nil {
		return lost
	}
	defer api.Close()
	name, err := apiclient.NodeName(api.Certificate().Leaf)
	if err == nil {
		node := &unstructured.Unstructured{Object: map[string]any{}}
		node.SetName(name)
		_, err = apiclient.AnnotateNode(ctx, api.Client, &apiclient.Watch{}, node, map[string]any{
			contract.RevisionAnnotation: nil, contract.ApplyStatusAnnotation: apiclient.ProblemText(lost)})
	}
	return errors.Join(lost, err)
}

// ownProgram returns the digest of this process's exe if it is the exe of the installed service, and otherwise an empty
// string. Call it first, because the exe may be replaced later.
func ownProgram(ctx context.Context, o Options) (string, error) {
	if !strings.EqualFold(o.Self, contract.PathDaemon) {
		return "", nil
	}
	digest, err := apply.DigestOf(ctx, o.Host.Files, o.Self)
	if err != nil {
		return "", fmt.Errorf("reading this program: %w", err)
	}
	return digest, nil
}

type runner struct {
	*service
	state    *state.File
	registry apply.Registry
	reporter *mirror.Reporter
	follow   func(contract.Manifest)
	report   func(contract.Reconciled)
	program  *selfupdate.Program
}

// withAPIServer reconciles with the API server, and renews the daemon's certificate, until ctx ends.
func (r *runner) withAPIServer(ctx context.Context, api *apiclient.Client) error {
	defer api.Close()
	ctx, stop := context.WithCancel(ctx)
	renewer := &apiclient.Renewer{
		Identity: apiclient.Daemon(r.Host.Files, r.state.NodeName), Client: api.Client,
		Lifetime: lifetime, Renewed: api.Reload, Clock: hostClock{system: r.Host.System},
	}
	var background sync.WaitGroup
	background.Go(func() { renewer.Run(ctx) })
	background.Go(func() { r.reporter.Run(ctx, api.Client) })
	defer background.Wait()
	defer stop()
	return r.reconciler(api).Run(ctx)
}

// hostClock is the host's own clock. The daemon uses this clock to decide whether a certificate has expired.
type hostClock struct {
	clock.RealClock
	system winos.System
}

func (c hostClock) Now() time.Time { return c.system.Now() }

func (c hostClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// open creates the client of the API server. If that fails, open logs the error and returns nil.
func (s *service) open(ctx context.Context) *apiclient.Client {
	api, err := apiclient.Open(apiclient.Options{Files: s.Host.Files, Kubeconfig: contract.PathDaemonKubeconfig,
		UserAgent: contract.ServiceDaemon + "/" + s.Version})
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err,
			"the API server can't be reached; the host keeps its last known state")
		return nil
	}
	return api
}

// `alone` reconciles the host with the last known revision. It ends when ctx ends, or when a client of the API server
// can be created. In the second case, it returns this client. `alone` uses a single Reconciler, because a new
// Reconciler would lose its state, such as the start time of a wait.
func (r *runner) alone(ctx context.Context) (api *apiclient.Client, err error) {
	ctx, stop := context.WithCancel(ctx)
	opened := make(chan *apiclient.Client, 1)
	go func() {
		defer stop()
		var found *apiclient.Client
		_ = wait.PollUntilContextCancel(ctx, openRetry, false, func(ctx context.Context) (bool, error) {
			found = r.open(ctx)
			return found != nil, nil
		}) // if ctx ends, found is nil
		opened <- found
	}()
	err = r.reconciler(nil).Run(ctx)
	stop()
	if api = <-opened; api != nil && err != nil {
		api.Close()
		api = nil
	}
	return api, err
}

func (r *runner) reconciler(api *apiclient.Client) *reconcile.Reconciler {
	options := reconcile.Options{
		Host: r.Host, State: r.state, NodeName: r.state.NodeName, Namespace: r.namespace, Registry: r.registry,
		Follow: r.follow, Report: r.report, Intervals: r.Intervals,
		Program: r.program,
	}
	if api != nil {
		options.Client, options.Kubeconfig, options.Trust = api.Client, contract.PathDaemonKubeconfig, api.Trust
		options.CertificateEnd = func() time.Time { return api.Certificate().Leaf.NotAfter }
		options.Source = func(urls []string, ca []byte) (payload.Source, error) {
			client, err := payload.NewClient(ca, api.Certificate)
			if err != nil {
				return nil, err
			}
			return &payload.Server{Client: client, URLs: urls}, nil
		}
	}
	return reconcile.New(options)
}

type journal struct {
	logr.Logger
	writer *logs.Writer
	config *textlogger.Config
}

// Log levels. At terse, the service logs changes. At verbose, it also logs why it changes nothing.
const (
	terse   = "0"
	verbose = "4"
)

func newJournal(o Options, path string) *journal {
	j := &journal{writer: logs.Open(o.Host.Files, path, o.Host.System.Now)}
	j.config = textlogger.NewConfig(textlogger.Output(j.writer))
	j.Logger = textlogger.NewLogger(j.config)
	j.configure(nil)
	return j
}

// configure applies the log settings of a manifest, or else the defaults.
func (j *journal) configure(d *contract.DaemonSettings) {
	level, limits := terse, contract.Log{}
	if d != nil && d.Debug {
		level = verbose
	}
	if d != nil && d.Log != nil {
		limits = *d.Log
	}
	_ = j.config.Verbosity().Set(level) // Set fails only if level is not a number
	j.writer.Limit(limits)
}
