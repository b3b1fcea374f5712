package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/agent/identity"
	"github.com/windows-nodes/wmco/internal/agent/ledger"
	"github.com/windows-nodes/wmco/internal/agent/link"
	"github.com/windows-nodes/wmco/internal/agent/logfile"
	"github.com/windows-nodes/wmco/internal/agent/tend"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// linkRetry is how long the host is tended without an API server before the kubeconfig and certificate, which could not be read, are tried again.
const linkRetry = time.Minute

// service is what the controller command is told.
type service struct {
	windowsService bool
	debug          bool
	logDir         string
	logMaxSizeMB   int
	caBundle       string
	certDir        string
	certDuration   time.Duration
	kubeconfig     string
	namespace      string
}

func controllerCommand(o Options, s *service) *cobra.Command {
	cmd := &cobra.Command{
		Use: "controller", Short: "Keep this node as the cluster says; the service manager runs this", Args: cobra.NoArgs,
		Long: `Keep this node as the cluster says, until stopped.

It acts as system:wicd-node:<node>, with the certificate that handover stored and that it renews by itself.
While the API server can't be reached, it goes on with the last manifest that it knew.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !strings.EqualFold(s.certDir, contract.DirDaemonCerts) {
				return fmt.Errorf("the daemon's certificate lies in %s, not in %s", contract.DirDaemonCerts, s.certDir)
			}
			if !s.windowsService {
				return s.run(cmd.Context(), o, o.Running)
			}
			return o.RunService(cmd.Context(), contract.ServiceDaemon, func(ctx context.Context, running func()) error {
				return s.run(ctx, o, running)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&s.windowsService, "windows-service", false, "run under the Windows service manager")
	f.StringVar(&s.logDir, "log-dir", contract.DirLog+`\wicd`, "`directory` of the log; empty logs to standard error")
	f.IntVar(&s.logMaxSizeMB, "log-file-max-size", 0, "begin a new log file at this many `MB`; 0 is 10")
	f.StringVar(&s.caBundle, "ca-bundle", "", "`file` with further certificate authorities to trust; it need not exist")
	f.StringVar(&s.certDir, "cert-dir", contract.DirDaemonCerts, "`directory` of the daemon's certificate")
	f.DurationVar(&s.certDuration, "cert-duration", 0, "lifetime to ask for when renewing the certificate; 0 is that of the present one")
	f.BoolVar(&s.debug, "debug", false, "log more")
	return cmd
}

// run is the service: it says at once that it runs, because the service manager waits for that and nothing else, and tends until ctx ends.
func (s *service) run(ctx context.Context, o Options, running func()) (err error) {
	log, closeLog, err := s.logger(o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			log.Error(err, "ended") // nobody sees a service's standard error
		}
		err = errors.Join(err, closeLog())
	}()
	ctx = logr.NewContext(ctx, log)
	book, err := ledger.Open(o.Host.Files)
	if err != nil {
		return err
	}
	if book.NodeName == "" {
		return errors.New("this host was not bootstrapped: the ledger names no node")
	}
	running()
	log.Info("started", "version", o.Version, "node", book.NodeName)
	for ctx.Err() == nil {
		l, err := link.Open(link.Options{Files: o.Host.Files, Kubeconfig: s.kubeconfig, CABundle: s.caBundle, UserAgent: contract.ServiceDaemon + "/" + o.Version})
		if err != nil {
			log.Error(err, "there is no way to the API server; the host is held at what was last known")
			s.tendAlone(ctx, o, book)
			continue
		}
		s.tend(ctx, o, book, l)
	}
	log.Info("stopped")
	return nil
}

// tend tends with the API server, and keeps the certificate renewed, until ctx ends.
func (s *service) tend(ctx context.Context, o Options, book *ledger.Book, l *link.Link) {
	defer l.Close()
	renewer := &identity.Renewer{Files: o.Host.Files, Client: l.Client, Lifetime: s.certDuration, Renewed: l.Reload, Clock: hostClock{system: o.Host.System}}
	var renewing sync.WaitGroup
	renewing.Go(func() { renewer.Run(ctx) })
	defer renewing.Wait()
	s.tender(o, book, l).Run(ctx)
}

// hostClock is the host's own clock: the one by which it judges what has expired.
type hostClock struct {
	clock.RealClock
	system winos.System
}

func (c hostClock) Now() time.Time { return c.system.Now() }

func (c hostClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// tendAlone holds the host at what was last known, for a while.
func (s *service) tendAlone(ctx context.Context, o Options, book *ledger.Book) {
	ctx, cancel := context.WithTimeout(ctx, linkRetry)
	defer cancel()
	s.tender(o, book, nil).Run(ctx)
}

func (s *service) tender(o Options, book *ledger.Book, l *link.Link) *tend.Tender {
	options := tend.Options{Host: o.Host, Book: book, NodeName: book.NodeName, Namespace: s.namespace, Pace: o.Pace}
	if l != nil {
		options.Client = l.Client
	}
	return tend.New(options)
}

func (s *service) logger(o Options) (log logr.Logger, closeLog func() error, err error) {
	verbosity := 0
	if s.debug {
		verbosity = 4
	}
	if s.logDir == "" {
		return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(o.Stderr), textlogger.Verbosity(verbosity))), func() error { return nil }, nil
	}
	w, err := logfile.Open(o.Host.Files, strings.TrimRight(s.logDir, `\`)+`\wicd.log`, int64(s.logMaxSizeMB)<<20)
	if err != nil {
		return log, nil, err
	}
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w), textlogger.Verbosity(verbosity))), w.Close, nil
}
