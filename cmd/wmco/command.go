package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/machine"
	"github.com/windows-nodes/wmco/internal/controller/publish"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/olm"
	"github.com/windows-nodes/wmco/internal/version"
)

type options struct {
	debug            bool
	metrics          string
	health           string
	payload          string
	payloadBind      string
	payloadAdvertise string
	namespace        string
	pod              string
	environment      func(name string) (string, bool)
	leaderElects     bool
	olm              bool
	retain           time.Duration
	machineRefusal   time.Duration
	daemonTimeout    time.Duration
}

func newCommand() *cobra.Command {
	o := options{environment: os.LookupEnv}
	root := &cobra.Command{
		Use:   "windows-machine-config-operator",
		Short: "Turn Windows Server machines into nodes of this cluster, and keep them that way",
		Long: `The operator reads the hosts in the ConfigMap windows-instances, creates a WindowsInstance for each host,
and makes each host a Ready node: it connects to the host once over SSH with the key in the secret
cloud-private-key and installs a daemon there. Then the daemon keeps the node in the state that the published
services manifest describes.

  kubectl get windowsinstances -n ` + contract.OperatorNamespace + `

shows what each host is doing, why it waits, and what to do about it.

Environment: WATCH_NAMESPACE (the operator's namespace), POD_NAME (its identity as a leader),
OPERATOR_CONDITION_NAME (the OperatorCondition that tells OLM whether an upgrade is safe), POD_IPS and POD_IP
(where nodes reach this pod), and for the nodes' logs SERVICES_LOG_FILE_SIZE, SERVICES_LOG_FILE_AGE and
SERVICES_LOG_FLUSH_INTERVAL. If a flag is not set, the operator reads it from an environment variable, such as
--payload-dir from WMCO_PAYLOAD_DIR.`,
		Version: version.Version(), Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := fromEnvironment(command.Flags(), o.environment); err != nil {
				return err
			}
			o.namespace, o.pod = valueOr(o.environment, "WATCH_NAMESPACE", contract.OperatorNamespace),
				valueOr(o.environment, "POD_NAME", "")
			return run(command.Context(), o)
		},
	}
	flags := root.Flags()
	flags.BoolVar(&o.debug, "debugLogging", false, "log in detail")
	flags.StringVar(&o.metrics, "metrics-bind-address", "0.0.0.0:9182",
		"address of the metrics, over HTTPS and for clients with the right to read /metrics; 0 serves none")
	flags.StringVar(&o.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flags.StringVar(&o.payload, "payload-dir", "/payload",
		"directory with the programs for nodes, made by `make payload`")
	flags.StringVar(&o.payloadBind, "payload-bind-address", fmt.Sprintf("0.0.0.0:%d", contract.PayloadServerPort),
		"address at which nodes fetch payload, over HTTPS; 0 disables it, and the operator sends the payload over SSH")
	flags.StringVar(&o.payloadAdvertise, "payload-advertise", "",
		"where nodes reach that address, as host[:port] separated by commas, tried in order (default the first "+
			"IPv4 address of POD_IPS, POD_IP, then the Service windows-payload)")
	flags.BoolVar(&o.leaderElects, "leader-elect", true, "work only while holding the lease "+contract.LeaderLease)
	flags.BoolVar(&o.olm, "olm", false,
		"apply what OLM leaves out of a bundle: admission policies first, then the bindings of the daemons' rights "+
			"and of the rights in other namespaces")
	flags.DurationVar(&o.retain, "manifest-retention", publish.DefaultGrace,
		"how long a services manifest stays after the last node stopped using it")
	flags.DurationVar(&o.machineRefusal, "machine-refusal-timeout", machine.DefaultRefusalTimeout,
		"how long a Machine's host that never accepted the private key may refuse it before the Machine is replaced")
	flags.DurationVar(&o.daemonTimeout, "daemon-timeout", journey.DefaultDaemonTimeout,
		"how long a daemon may be unresponsive, while kubelet is healthy, before its host is joined again over SSH")
	flags.AddGoFlagSet(flag.CommandLine) // the flag --kubeconfig of controller-runtime
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			// Don't change this line: scripts of users parse it.
			_, err := fmt.Fprintf(command.OutOrStdout(),
				"windows-machine-config-operator version: %q, go version: %q\n",
				version.Version(), runtime.Version())
			return err
		},
	})
	root.AddCommand(uninstallCommand(o.environment), providerCommand(o.environment))
	return root
}

func uninstallCommand(environment func(name string) (string, bool)) *cobra.Command {
	o := uninstallOptions{namespace: valueOr(environment, "WATCH_NAMESPACE", contract.OperatorNamespace)}
	command := &cobra.Command{
		Use:   "uninstall-check",
		Short: "Fail if WindowsInstances exist, and list them; run this before you remove the operator",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return uninstallCheck(command.Context(), command.OutOrStdout(), o)
		},
	}
	command.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default the same as "+
		"kubectl's)")
	command.Flags().StringVar(&o.advice, "advice", "", "text to print in addition when the check fails")
	return command
}

// fromEnvironment sets each flag that has an environment variable. Flags on the command line take precedence.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var all []error
	flags.VisitAll(func(f *pflag.Flag) {
		value := valueOr(lookup, olm.Variable(f.Name), "")
		if f.Changed || value == "" || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			all = append(all, fmt.Errorf("reading %s: %w", olm.Variable(f.Name), err))
		}
	})
	return errors.Join(all...)
}

func valueOr(lookup func(string) (string, bool), name, otherwise string) string {
	if value, ok := lookup(name); ok && value != "" {
		return value
	}
	return otherwise
}
