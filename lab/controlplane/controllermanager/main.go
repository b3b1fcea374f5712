// Command controllermanager runs the controllers of the lab's control plane: the few controllers of
// kube-controller-manager that the operator's environment needs, and podgc, which is our own. lab/cluster builds and
// starts it. It accepts those flags of kube-controller-manager that the lab sets, with the same meaning. It never
// elects a leader, serves only /healthz, and runs until it is killed. The lab doesn't use kube-controller-manager
// itself, because it imports all controllers, and with them volumes, autoscaling, kubelet and scheduler. Compiling it
// took longer than compiling the rest of the control plane.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// options are the values of the flags.
type options struct {
	kubeconfig  string
	controllers []string
	qps         float32
	burst       int
	serving     *serveroptions.SecureServingOptions

	signingCert, signingKey string
	signingDuration         time.Duration
	rootCA, tokenKey        string

	allocateNodeCIDRs bool
	clusterCIDR       string

	monitorPeriod, monitorGrace, startupGrace time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	o := addFlags(flags)
	_ = flags.Parse(os.Args[1:]) // it exits on an error
	if err := run(ctx, o); err != nil {
		klog.Background().Error(err, "Running the controllers")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func addFlags(flags *pflag.FlagSet) *options {
	o := &options{serving: serveroptions.NewSecureServingOptions()}
	o.serving.AddFlags(flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the API server's address and the identity to use")
	flags.StringSliceVar(&o.controllers, "controllers", nil, "the controllers to run, of: "+strings.Join(names(), ", "))
	flags.Float32Var(&o.qps, "kube-api-qps", 20, "requests in a second, of each controller")
	flags.IntVar(&o.burst, "kube-api-burst", 30, "requests at once, of each controller")
	flags.StringVar(&o.signingCert, "cluster-signing-cert-file", "", "certificate of the CA that signs requests")
	flags.StringVar(&o.signingKey, "cluster-signing-key-file", "", "key of the CA that signs requests")
	flags.DurationVar(&o.signingDuration, "cluster-signing-duration", 365*24*time.Hour, "longest life of a certificate")
	flags.StringVar(&o.rootCA, "root-ca-file", "", "CA that pods are given")
	flags.StringVar(&o.tokenKey, "service-account-private-key-file", "", "key that signs tokens kept in Secrets")
	flags.BoolVar(&o.allocateNodeCIDRs, "allocate-node-cidrs", false, "give each node its part of the pods' network")
	flags.StringVar(&o.clusterCIDR, "cluster-cidr", "", "the pods' network")
	flags.DurationVar(&o.monitorPeriod, "node-monitor-period", 5*time.Second, "how often nodes are looked at")
	flags.DurationVar(&o.monitorGrace, "node-monitor-grace-period", 50*time.Second,
		"how long a node may be unresponsive")
	flags.DurationVar(&o.startupGrace, "node-startup-grace-period", time.Minute,
		"how long a new node may be unresponsive")
	verbosity := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	flags.AddGoFlag(verbosity.Lookup("v"))
	return o
}

// run creates all controllers before it starts the first, so that all informers are registered when they start.
func run(ctx context.Context, o *options) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // controllers also list deprecated kinds
	c, err := newControl(ctx, o)
	if err != nil {
		return err
	}
	loops, err := c.build(ctx)
	if err != nil {
		return err
	}
	c.start(ctx)
	for _, loop := range loops {
		go loop(ctx)
	}
	return serve(ctx, o.serving)
}

// serve serves /healthz until ctx ends.
func serve(ctx context.Context, serving *serveroptions.SecureServingOptions) error {
	var info *server.SecureServingInfo
	if err := serving.ApplyTo(&info); err != nil {
		return fmt.Errorf("preparing to serve /healthz: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	stopped, _, err := info.Serve(mux, 0, ctx.Done())
	if err != nil {
		return fmt.Errorf("serving /healthz: %w", err)
	}
	<-stopped
	return nil
}
