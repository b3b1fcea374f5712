package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/windows-nodes/wmco/api/bootstrap/v1alpha1"
	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/bootstrap"
	"github.com/windows-nodes/wmco/internal/contract"
)

type providerOptions struct{ namespace, operatorNamespace, health string }

func providerCommand(environment func(name string) (string, bool)) *cobra.Command {
	o := providerOptions{}
	command := &cobra.Command{
		Use:   "bootstrap-provider",
		Short: "Give Windows Machines of Cluster API their bootstrap data; run this in the management cluster",
		Long: `The bootstrap provider creates a WindowsInstance in the workload cluster for each WindowsConfig, and
passes the command of this host to the infrastructure provider as bootstrap data. The operator runs in each workload
cluster. The provider reaches a workload cluster with the Secret <cluster>-kubeconfig.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			o.namespace = valueOr(environment, "WATCH_NAMESPACE", "windows-bootstrap-system")
			return provide(command.Context(), o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.operatorNamespace, "operator-namespace", contract.OperatorNamespace,
		"namespace of the operator in the workload clusters")
	flags.StringVar(&o.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flags.AddGoFlagSet(flag.CommandLine) // the flag --kubeconfig of controller-runtime
	return command
}

func provide(ctx context.Context, o providerOptions) error {
	log := textlogger.NewLogger(textlogger.NewConfig())
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	restConfig, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err = errors.Join(clientgoscheme.AddToScheme(scheme), bootstrapv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("making a scheme: %w", err)
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: scheme, HealthProbeBindAddress: o.health,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "windows-bootstrap-provider", LeaderElectionNamespace: o.namespace,
		LeaderElectionReleaseOnCancel: true,
		// Don't cache Secrets: the provider may get a Secret by its name, but not list Secrets. Cache the objects of
		// Cluster API, although they are unstructured.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true,
			DisableFor: []client.Object{&corev1.Secret{}}}}})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err = errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping),
		bootstrap.Setup(mgr, o.operatorNamespace)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
