package kubectlwindows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

type awaiting struct {
	wait    bool
	timeout time.Duration
}

func (a *awaiting) addFlags(command *cobra.Command, until string) {
	command.Flags().BoolVar(&a.wait, "wait", false, "wait until "+until+", and show the progress; Ctrl-C ends only "+
		"the command")
	command.Flags().DurationVar(&a.timeout, "timeout", 30*time.Minute, "how long --wait waits")
}

// await waits until all named hosts are done, but at most for a.timeout. It prints each change, and retries failed
// reads. `look` returns the WindowsInstance of a name or nil, and whether the host is done.
func (e *editor) await(ctx context.Context, a awaiting, names []string, done string,
	look func(all []v1alpha1.WindowsInstance, name string) (*v1alpha1.WindowsInstance, bool)) error {
	if !a.wait || e.dryRun != cmdutil.DryRunNone {
		return nil
	}
	begun := e.now()
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	shown := map[string]string{}
	left := slices.Clone(names)
	var failed error
	err := wait.PollUntilContextCancel(limited, checkEvery, true, func(ctx context.Context) (bool, error) {
		all, err := e.instances(ctx)
		if err != nil {
			if ctx.Err() == nil {
				failed = err
			}
			return false, nil
		}
		failed = nil
		left = slices.DeleteFunc(left, func(name string) bool {
			one, isDone := look(all, name)
			text := progress(one)
			if isDone {
				text = fmt.Sprintf("%s after %s", done, e.now().Sub(begun).Round(time.Second))
			}
			if shown[name] != text {
				_, _ = fmt.Fprintf(e.ErrOut, "%s: %s\n", name, diagnosis.Visible(text))
			}
			shown[name] = text
			return isDone
		})
		return len(left) == 0, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted: the operator continues")
	case failed != nil:
		return failed
	}
	return fmt.Errorf("not %s within %s: %s. The operator continues: kubectl windows why %s", done, a.timeout,
		strings.Join(left, ", "), left[0])
}

func progress(instance *v1alpha1.WindowsInstance) string {
	if instance == nil {
		return "the operator has not begun"
	}
	host := diagnosis.HostOf(instance)
	text := strings.TrimSuffix(string(host.Phase)+"/"+string(host.Step), "/")
	if host.Reason != "" {
		text += fmt.Sprintf(": %s %s: %s", host.Code, host.Reason, host.Message)
	}
	if host.Fix != "" && host.Failing {
		text += "\n  fix: " + host.Fix
	}
	return text
}

func (e *editor) awaitReady(ctx context.Context, a awaiting, names ...string) error {
	return e.await(ctx, a, names, "Ready", func(all []v1alpha1.WindowsInstance,
		name string) (*v1alpha1.WindowsInstance, bool) {
		for i, one := range all {
			if strings.EqualFold(name, one.Spec.Address) || strings.EqualFold(name, one.Name) {
				host := diagnosis.HostOf(&one)
				return &all[i], host.Ready && cmp.Or(host.Step, v1alpha1.StepWaiting) == v1alpha1.StepWaiting
			}
		}
		return nil, false
	})
}

// awaitRemoved waits until the operator has removed the named hosts. `before` was read before the removal.
func (e *editor) awaitRemoved(ctx context.Context, a awaiting, before []v1alpha1.WindowsInstance,
	names []string) error {
	return e.await(ctx, a, names, "removed", func(all []v1alpha1.WindowsInstance,
		name string) (*v1alpha1.WindowsInstance, bool) {
		was, _ := findInstance(before, name) // remove has already refused ambiguous names
		for i := range all {
			if was != nil && all[i].UID == was.UID {
				return &all[i], false
			}
		}
		return nil, true
	})
}
