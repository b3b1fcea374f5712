package kubectlwindows

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

type addOptions struct {
	awaiting
	user, hostKey, file string
	port                uint16
	overwrite, byItself bool
	lifetime            time.Duration
}

func (p *plugin) addCommand() *cobra.Command {
	var o addOptions
	command := &cobra.Command{
		Use:   "add ADDRESS --username NAME | -f FILE | NAME --by-itself",
		Short: "Add a host, so that it becomes a node",
		Long: `Add a host to the ConfigMap windows-instances, so that it becomes a node. The operator then logs
in to it over SSH with the key of the cluster. Other entries stay as they are.

The address is an IPv4 address or a DNS name.

With -f, add reads hosts from a file of comma-separated values. The first line names its columns: address,
username, port and hostKey, of which only address is required. The flags apply to hosts without a value. If
one entry is wrong, add adds none of the file.

With --by-itself, the operator never connects to the host: the command prints a PowerShell command for the
host, which makes it join. The host must reach the API server, and needs no SSH server. The printed command
contains a token that is worth one join. Run "add --by-itself" again for another token.`,
		Example: `  kubectl windows add 10.0.0.7 --username Administrator

  # With the SSH host key that it must have, instead of trusting the first contact
  kubectl windows add win-7.example.com --username Administrator \
    --host-key "$(ssh-keyscan -t ed25519 win-7.example.com | cut -d' ' -f2-)"

  # Wait until the host is a node
  kubectl windows add 10.0.0.7 --username Administrator --wait

  # Many hosts: a file with the line "address,username", and a line for each host
  kubectl windows add -f hosts.csv

  # A host without an SSH server
  kubectl windows add win-8 --by-itself`,
		Args: func(command *cobra.Command, args []string) error {
			if o.file != "" {
				return cobra.NoArgs(command, args)
			}
			return cobra.ExactArgs(1)(command, args)
		}, ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(command)
	return p.edits(command, false, func(ctx context.Context, e *editor, args []string) error {
		if o.byItself {
			if err := e.addByItself(ctx, args[0], o.lifetime); err != nil {
				return err
			}
			return e.awaitReady(ctx, o.awaiting, args[0])
		}
		hosts := map[string]string{}
		if o.file == "" {
			hosts[args[0]] = entry(o.settings())
		} else if err := e.readHosts(hosts, o); err != nil {
			return err
		}
		if err := e.add(ctx, hosts, o.overwrite); err != nil {
			return err
		}
		added := slices.Sorted(maps.Keys(hosts))
		for _, address := range added {
			if err := e.done("host %s added: kubectl windows why %[1]s shows how far it is", address); err != nil {
				return err
			}
		}
		return e.awaitReady(ctx, o.awaiting, added...)
	})
}

func (o *addOptions) addFlags(command *cobra.Command) {
	command.Flags().StringVar(&o.user, "username", "", "name of an administrator of the host")
	command.Flags().StringVar(&o.hostKey, "host-key", "", `SSH host key to expect, as "<type> <base64>"`)
	command.Flags().Uint16Var(&o.port, "port", contract.SSHPort, "port of the SSH server")
	command.Flags().BoolVar(&o.overwrite, "overwrite", false, "change the entry that the host has")
	command.Flags().BoolVar(&o.byItself, "by-itself", false, "print a command that makes the host join without SSH")
	command.Flags().DurationVar(&o.lifetime, "token-lifetime", 24*time.Hour,
		"how long the token of --by-itself is valid, from 10m to 24h")
	command.Flags().StringVarP(&o.file, "filename", "f", "", "file with hosts, or - for standard input")
	o.awaiting.addFlags(command, "the hosts are Ready")
	command.MarkFlagsOneRequired("username", "by-itself", "filename")
	for _, flag := range []string{"username", "host-key", "port", "overwrite", "filename"} {
		command.MarkFlagsMutuallyExclusive("by-itself", flag)
	}
}

// settings returns the settings that the flags give for a host's entry.
func (o *addOptions) settings() map[string]string {
	settings := map[string]string{"username": o.user, "hostKey": o.hostKey}
	if o.port != contract.SSHPort {
		settings["port"] = strconv.Itoa(int(o.port))
	}
	return settings
}

// entry returns the value of a host's entry in the ConfigMap windows-instances. It omits settings without a value.
func entry(settings map[string]string) string {
	var lines []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(settings))) { // reverse order: username is first
		if settings[name] != "" {
			lines = append(lines, name+"="+settings[name])
		}
	}
	return strings.Join(lines, "\n")
}

// readHosts reads hosts from a file of comma-separated values, and adds their entries to the map hosts. A column is a
// setting of an entry. If a line of the file lacks a value, readHosts uses the value of the flag.
func (e *editor) readHosts(hosts map[string]string, o addOptions) error {
	in := e.In
	if o.file != "-" {
		opened, err := os.Open(o.file)
		if err != nil {
			return fmt.Errorf("reading hosts: %w", err)
		}
		defer func() { _ = opened.Close() }()
		in = opened
	}
	lines := csv.NewReader(in)
	lines.TrimLeadingSpace, lines.Comment = true, '#'
	rows, err := lines.ReadAll()
	if err != nil {
		return fmt.Errorf("reading hosts from %s: %w", o.file, err)
	}
	if len(rows) < 2 || !slices.Contains(rows[0], "address") {
		return fmt.Errorf("%s must have a first line with the columns, such as address,username, and a line for each "+
			"host", o.file)
	}
	for _, row := range rows[1:] {
		settings := o.settings()
		for i, value := range row {
			if value = strings.TrimSpace(value); value != "" {
				settings[strings.TrimSpace(rows[0][i])] = value
			}
		}
		address := settings["address"]
		delete(settings, "address")
		if settings["port"] == strconv.Itoa(contract.SSHPort) {
			delete(settings, "port") // omit the default port
		}
		if address == "" {
			return fmt.Errorf("%s has a line without an address", o.file)
		}
		if _, twice := hosts[address]; twice {
			return fmt.Errorf("%s has the address %q twice", o.file, address)
		}
		hosts[address] = entry(settings)
	}
	return nil
}

// add writes the entries of hosts to windows-instances. If the operator would reject an entry, add changes nothing and
// fails.
func (e *editor) add(ctx context.Context, hosts map[string]string, overwrite bool) error {
	return e.editEntries(ctx, func(list *corev1.ConfigMap) error {
		for key, other := range inventory.Values(list) {
			if value, ours := hosts[key]; ours && other != value && !overwrite {
				return fmt.Errorf("host %s is listed already with other settings: --overwrite changes them", key)
			}
		}
		for address, value := range hosts {
			delete(list.BinaryData, address) // a key must not be in both data and binaryData
			list.Data[address] = value
		}
		_, rejected := inventory.Parse(list)
		for _, r := range rejected {
			if _, ours := hosts[r.Key]; ours {
				return r.Problem
			}
			for address := range hosts {
				if strings.EqualFold(r.Key, address) {
					return fmt.Errorf("host %s is listed already, as %s", address, r.Key)
				}
			}
		}
		return nil
	})
}

// manyWriters is the backoff after conflicts. With it, dozens of concurrent writers succeed.
func manyWriters() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.3, Jitter: 1, Steps: 18}
}

// editEntries changes the ConfigMap windows-instances by a call of `edit`. If the ConfigMap doesn't exist, editEntries
// creates it.
func (e *editor) editEntries(ctx context.Context, edit func(list *corev1.ConfigMap) error) error {
	const subject = "ConfigMap " + contract.InstancesConfigMap
	return retry.OnError(manyWriters(), func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}, func() error {
		list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.operator,
			Name: contract.InstancesConfigMap}}
		unread := e.Get(ctx, client.ObjectKeyFromObject(list), list)
		if client.IgnoreNotFound(unread) != nil {
			return fmt.Errorf("reading %s: %w", subject, unread)
		}
		before := list.DeepCopy()
		if list.Data == nil {
			list.Data = map[string]string{}
		}
		err := edit(list)
		switch {
		case err != nil || e.dryRun == cmdutil.DryRunClient:
			return err
		case unread != nil:
			err = e.Create(ctx, list)
		default:
			err = e.Patch(ctx, list, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
		if err != nil {
			return fmt.Errorf("changing %s: %w", subject, err)
		}
		return nil
	})
}

func (p *plugin) removeCommand() *cobra.Command {
	force := false
	var a awaiting
	command := &cobra.Command{
		Use:   "remove HOST...",
		Short: "Remove hosts: drain them, clean them, delete their Nodes",
		Long: `Remove hosts. The operator drains each host within the rollout budget, removes over SSH what it
installed, and deletes the Node. If a host is unreachable, the operator waits for it.

--force is for hosts that no longer exist. The operator does not wait for pods or for the budget. It tries
to clean the host once, and deletes the Node and the WindowsInstance in any case. If the host still
exists, it keeps running kubelet and containerd until its daemon cleans it.

remove deletes the host's entry in the ConfigMap windows-instances, or the WindowsInstance that a user
created. To remove the host of a Machine, delete the Machine.`,
		Example: `  kubectl windows remove 10.0.0.7
  kubectl windows remove 10.0.0.7 --yes --wait
  kubectl windows remove 10.0.0.8 --force --yes`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: p.completeHosts,
	}
	command.Flags().BoolVar(&force, "force", false, "for hosts that no longer exist: do not wait for anything")
	a.addFlags(command, "the operator has removed the hosts")
	return p.edits(command, true, func(ctx context.Context, e *editor, args []string) error {
		how := "drained, cleaned and removed"
		if force {
			how = "removed WITHOUT waiting for pods, and without cleaning those that do not answer"
		}
		instances, err := e.instances(ctx)
		if err != nil {
			return err
		}
		if err = e.confirm("These hosts are "+how, args); err != nil {
			return err
		}
		if err = each(args, func(name string) error { return e.remove(ctx, instances, name, force) }); err != nil {
			return err
		}
		return e.awaitRemoved(ctx, a, instances, args)
	})
}

func (e *editor) remove(ctx context.Context, instances []v1alpha1.WindowsInstance, name string, force bool) error {
	instance, err := findInstance(instances, name)
	if err != nil {
		return err
	}
	if instance == nil { // the host has no instance: its entry is invalid, or the operator has not read the entry yet
		if err = e.removeEntry(ctx, name); err != nil {
			return err
		}
		return e.done("host %s is being removed", name)
	}
	source := instance.Spec.Source
	if source != nil && source.Kind == v1alpha1.SourceMachine {
		return fmt.Errorf("host %s belongs to a Machine; delete the Machine: kubectl delete machine %s -n "+
			"%s", name, source.Name,
			contract.MachineAPINamespace)
	}
	// Withdraw the host first. If the API server refuses this, the removal policy must not change. Otherwise a later
	// removal would be forced.
	if instance.DeletionTimestamp.IsZero() {
		if err := e.withdraw(ctx, instance); err != nil {
			return err
		}
	}
	if force {
		err := e.merge(ctx, instance.DeepCopy(), map[string]any{"spec": map[string]any{
			"removalPolicy": v1alpha1.RemovalForce}}, "host "+name)
		if client.IgnoreNotFound(err) != nil { // the instance may already be deleted
			return fmt.Errorf("host %s is being removed, but not by force: %w", name, err)
		}
	}
	already := map[bool]string{true: " already"}[!instance.DeletionTimestamp.IsZero()]
	return e.done("host %s is being removed%s", name, already)
}

var errNoEntry = errors.New(contract.InstancesConfigMap + " has no entry of that name")

// withdraw removes the instance's entry from windows-instances, or deletes an instance that a user created. If the
// entry or the instance is already gone, withdraw succeeds.
func (e *editor) withdraw(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	if source := instance.Spec.Source; source != nil {
		if err := e.removeEntry(ctx, source.Name); err != nil && !errors.Is(err, errNoEntry) {
			return err
		}
		return nil
	}
	if e.dryRun == cmdutil.DryRunClient {
		return nil
	}
	if err := e.Delete(ctx, instance); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting WindowsInstance %s: %w", instance.Name, err)
	}
	return nil
}

func (e *editor) removeEntry(ctx context.Context, name string) error {
	return e.editEntries(ctx, func(list *corev1.ConfigMap) error {
		for key := range inventory.Values(list) {
			if strings.EqualFold(key, name) {
				delete(list.Data, key)
				delete(list.BinaryData, key)
				return nil
			}
		}
		return fmt.Errorf("no host is named %s, and %w", name, errNoEntry)
	})
}

func (p *plugin) pauseCommand(paused bool) *cobra.Command {
	all, rollout := false, false
	command := &cobra.Command{
		Use:   "pause HOST... | --all",
		Short: "Pause hosts: the operator does not change them",
		Long: `Pause hosts: the operator does not join, upgrade, reboot or remove them. Exception: a removal with
--force. The daemons of paused hosts still repair their nodes.

To pause the rollout on all nodes, set spec.rollout.maxUnavailable of the WindowsMachineConfig to 0.`,
		Example:           `  kubectl windows pause 10.0.0.7`,
		ValidArgsFunction: p.completeHosts,
	}
	command.Flags().BoolVar(&all, "all", false, "all hosts")
	if !paused {
		command.Use = "resume HOST... | --all | --rollout"
		command.Short = "Continue with paused hosts, or with a halted rollout"
		command.Long = `Let the operator continue with paused hosts.

With --rollout, the operator continues a rollout that was halted because nodes failed at its revision. This
applies to this revision only. Nodes that fail are still rolled back.`
		command.Example = "  kubectl windows resume 10.0.0.7\n  kubectl windows resume --rollout"
		command.Flags().BoolVar(&rollout, "rollout", false, "continue the halted rollout")
	}
	return p.edits(command, false, func(ctx context.Context, e *editor, args []string) error {
		if rollout {
			return e.resumeRollout(ctx)
		}
		instances, err := e.instances(ctx)
		if err != nil {
			return err
		}
		for i := range instances {
			if all && instances[i].Spec.Paused != paused && !slices.Contains(args, instances[i].Name) {
				args = append(args, instances[i].Name)
			}
		}
		if len(args) == 0 && !all {
			return errors.New("specify hosts, or set --all")
		}
		return each(args, func(name string) error {
			instance, err := findInstance(instances, name)
			if err != nil {
				return err
			}
			return e.pause(ctx, instance, name, paused)
		})
	})
}

func (e *editor) pause(ctx context.Context, instance *v1alpha1.WindowsInstance, name string, paused bool) error {
	state := map[bool]string{true: "paused", false: "resumed"}[paused]
	switch {
	case instance == nil:
		return fmt.Errorf("no host is named %s", name)
	case !paused && instance.Annotations[contract.IgnoredAnnotation] == "true":
		return fmt.Errorf("host %s is paused because its Machine has the label %s: remove the label", name,
			contract.IgnoreLabel)
	case instance.Spec.Paused == paused:
		return e.done("host %s is %s already", name, state)
	}
	if err := e.merge(ctx, instance.DeepCopy(), map[string]any{"spec": map[string]any{"paused": paused}},
		"host "+name); err != nil {
		return err
	}
	return e.done("host %s %s", name, state)
}

func (e *editor) resumeRollout(ctx context.Context) error {
	config := &v1alpha1.WindowsMachineConfig{}
	if err := e.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		return fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	rollout := config.Status.Rollout
	if rollout.Phase != v1alpha1.RolloutHalted {
		return fmt.Errorf("the rollout is not halted but %s: %s", rollout.Phase, rollout.Message)
	}
	if err := e.merge(ctx, config, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		contract.ResumeRolloutAnnotation: rollout.Revision}}}, "the WindowsMachineConfig"); err != nil {
		return err
	}
	return e.done("rollout of %s continues", rollout.Revision)
}
