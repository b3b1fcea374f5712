// Command promoperator does the work of the Prometheus operator for the lab's Prometheus, with that operator's own
// code: it creates a configuration from ServiceMonitors, and files from PrometheusRules. It also maintains the
// endpoints of kubelets. It has its own module, so that its dependencies don't affect other modules.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus-operator/prometheus-operator/pkg/kubelet"
	"github.com/prometheus-operator/prometheus-operator/pkg/operator"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, manifests io.Reader) error {
	var r renderer
	flags := flag.NewFlagSet("promoperator", flag.ContinueOnError)
	kubelets := flags.String("kubelets", "", "kubeconfig to update the endpoints of kubelets with; then nothing is "+
		"rendered")
	selector := flags.String("nodes", "", "labels of the nodes whose kubelets get endpoints; all if empty")
	flags.StringVar(&r.dir, "dir", "", "where the configuration goes")
	flags.StringVar(&r.root, "root", "", "what is mounted in the pod of Prometheus lies below this directory")
	flags.StringVar(&r.server, "server", "", "URL of the API server")
	flags.StringVar(&r.state, "kube-state-metrics", "", "address of what tells Prometheus about pods")
	flags.StringVar(&r.interval, "interval", "", "between scrapes and evaluations, instead of what the manifests say")
	flags.StringVar(&r.hold, "for", "", "how long an alert's condition must hold, where the manifests say any time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubelets != "" {
		return keepKubelets(ctx, *kubelets, operator.LabelSelector(*selector))
	}
	return r.render(manifests)
}

// keepKubelets maintains the Service kube-system/kubelet with the nodes' endpoints until ctx ends.
func keepKubelets(ctx context.Context, kubeconfig string, nodes operator.LabelSelector) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller, err := kubelet.New(slog.New(slog.NewTextHandler(os.Stderr, nil)), client, nil, "kubelet", metav1.NamespaceSystem,
		nodes, nil, nil, kubelet.WithEndpointSlice(), kubelet.WithMaxEndpointsPerSlice(100),
		kubelet.WithNodeAddressPriority("internal"), kubelet.WithSyncPeriod(time.Second))
	if err != nil {
		return err
	}
	return controller.Run(ctx)
}
