package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

const (
	// checksAtOnce is the number of hosts that are checked at the same time. checkEvery is how often results are read.
	checksAtOnce = 8
	checkEvery   = 500 * time.Millisecond
	// removeLimit is the time limit for deleting the objects that preflight created, even after Ctrl-C.
	removeLimit = 15 * time.Second
)

type preflightOptions struct {
	user, hostKey string
	port          uint16
	timeout       time.Duration
}

func (p *plugin) preflightCommand() *cobra.Command {
	var o preflightOptions
	command := &cobra.Command{
		Use:   "preflight ADDRESS... --username NAME",
		Short: "Check whether hosts can join, without joining them",
		Long: `Check whether hosts can join, without joining them. The operator logs in to each host over SSH, reads
its state, and changes nothing: it creates no Node and requests no certificate. The reasons are the same
as for a join that fails.

During the check, there is a WindowsInstance with spec.preflightOnly for each host. preflight deletes it
afterwards, and after Ctrl-C. If it can't, the operator deletes the WindowsInstance after an hour.

The exit code is 2 if a host can't join.`,
		Example: `  kubectl windows preflight 10.0.0.7 10.0.0.8 --username Administrator`,
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, args []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			found, err := p.preflight(command.Context(), r, o, args)
			return p.show(found, err)
		},
	}
	command.Flags().StringVar(&o.user, "username", "", "name of an administrator of the hosts")
	command.Flags().StringVar(&o.hostKey, "host-key", "", `SSH host key to expect, as "<type> <base64>"`)
	command.Flags().Uint16Var(&o.port, "port", contract.SSHPort, "port of the SSH servers")
	command.Flags().DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long the check of a host may take")
	_ = command.MarkFlagRequired("username")
	p.outputFlag(command, "json", "yaml")
	return command
}

type checked struct {
	Address string             `json:"address"`
	Fits    bool               `json:"fits"`
	Host    *v1alpha1.HostInfo `json:"host,omitempty"`
	Code    string             `json:"code,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
	Fix     string             `json:"fix,omitempty"`
}

type checks []checked

func (all checks) Healthy() bool {
	return !slices.ContainsFunc(all, func(one checked) bool { return !one.Fits })
}

func (all checks) Print(out io.Writer, _ diagnosis.Style) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "HOST\tCAN JOIN\tREASON")
	for _, c := range all {
		fits, why := "yes", ""
		if !c.Fits {
			fits, why = "no", c.Code+" "+c.Reason
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", oneLine(c.Address), fits, oneLine(why))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, c := range all {
		if c.Fits {
			continue
		}
		if _, err := fmt.Fprintf(out, "\n%s: %s\n  fix: %s\n", oneLine(c.Address), oneLine(c.Message),
			oneLine(c.Fix)); err != nil {
			return err
		}
	}
	return nil
}

// oneLine returns a host's text as one line, without control characters.
func oneLine(text string) string { return strings.ReplaceAll(diagnosis.Visible(text), "\n", " ") }

// preflight checks several hosts at once. If there is an error, it also returns the results so far.
func (p *plugin) preflight(ctx context.Context, r *reader, o preflightOptions, addresses []string) (checks, error) {
	var group errgroup.Group
	group.SetLimit(checksAtOnce)
	found, failed := make(checks, len(addresses)), make([]error, len(addresses))
	for i, address := range addresses {
		group.Go(func() error {
			one, err := r.check(ctx, o, address)
			if found[i] = one; err != nil {
				failed[i] = fmt.Errorf("checking %s: %w", address, err)
			}
			return nil // the errors of hosts are collected in failed
		})
	}
	_ = group.Wait()
	return found, errors.Join(failed...)
}

// check asks the operator to check a host: it creates a WindowsInstance, and deletes it again.
func (r *reader) check(ctx context.Context, o preflightOptions, address string) (one checked, err error) {
	one = checked{Address: address, Message: "it was not checked"}
	if err = ctx.Err(); err != nil {
		return one, errors.New("interrupted")
	}
	instance := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "preflight-" + rand.String(8), Namespace: r.operator},
		Spec: v1alpha1.WindowsInstanceSpec{Address: address, Port: int32(o.port), Username: o.user, HostKey: o.hostKey,
			PreflightOnly: true}}
	// Validate strictly. Otherwise, an older API server would drop preflightOnly, and the host would join.
	created := r.Create(ctx, instance, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.ReasonForError(created) != metav1.StatusReasonUnknown { // the API server refused the object
		return one, fmt.Errorf("creating a WindowsInstance: %w", created)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		if left := client.IgnoreNotFound(r.Delete(end, instance)); left != nil {
			err = errors.Join(err,
				fmt.Errorf("WindowsInstance %s could not be deleted; delete it: %w", instance.Name, left))
		}
	}()
	if created != nil { // the API server may have created the object despite the error
		return one, fmt.Errorf("creating a WindowsInstance: %w", created)
	}
	err = r.awaitCheck(ctx, instance, o.timeout)
	status, host := instance.Status, diagnosis.HostOf(instance)
	return checked{Address: address, Host: status.Host, Code: host.Code, Reason: host.Reason,
		Message: host.Message, Fix: host.Fix,
		Fits: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionPreflightPassed)}, err
}

// awaitCheck reads an instance until the operator has reported the result of the check. If the instance is missing or
// may not be read, awaitCheck fails. After other errors, it reads again until the time is over.
func (r *reader) awaitCheck(ctx context.Context, instance *v1alpha1.WindowsInstance, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name, status := instance.Name, &instance.Status
	var failed error
	err := wait.PollUntilContextCancel(limited, checkEvery, true, func(ctx context.Context) (bool, error) {
		err := r.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			return false, fmt.Errorf("reading WindowsInstance %s: %w", name, err)
		case err == nil || ctx.Err() == nil: // the time limit didn't cause the error
			failed = err
		}
		return err == nil && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPreflightPassed) != nil, nil
	})
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case limited.Err() == nil:
		return err
	case failed != nil:
		return fmt.Errorf("it did not end within %s: reading WindowsInstance %s: %w", timeout, name, failed)
	case status.Reason() == "":
		return fmt.Errorf("the operator did not start the check within %s: run kubectl windows status to see whether "+
			"the operator is running",
			timeout)
	}
	return fmt.Errorf("it did not end within %s: %s", timeout, status.Message())
}
