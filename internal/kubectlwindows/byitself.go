package kubectlwindows

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// commandTimeout is how long addByItself waits for the operator to publish the command for a host.
const commandTimeout = time.Minute

// addByItself creates the WindowsInstance of a host that joins by itself, and prints the command that the user runs on
// the host. If the WindowsInstance exists and no host has used its command, addByItself replaces the command, and the
// earlier command becomes invalid.
func (e *editor) addByItself(ctx context.Context, name string, lifetime time.Duration) error {
	instance := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.operator},
		Spec: v1alpha1.WindowsInstanceSpec{Address: name, ByItself: &v1alpha1.ByItself{
			TokenLifetime: metav1.Duration{Duration: lifetime}}}}
	if e.dryRun == cmdutil.DryRunClient {
		return e.done("host %s added", name)
	}
	err := e.Create(ctx, instance, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) {
		err = e.inviteAgain(ctx, instance, lifetime)
	}
	if err != nil {
		return fmt.Errorf("adding host %s: %w", name, err)
	}
	if e.dryRun != cmdutil.DryRunNone {
		return e.done("host %s added", name)
	}
	_, _ = fmt.Fprintln(e.ErrOut, "Waiting for the operator to publish the command ...")
	command := &corev1.Secret{}
	key := client.ObjectKey{Namespace: e.operator, Name: contract.JoinSecretPrefix + string(instance.UID)}
	err = wait.PollUntilContextTimeout(ctx, checkEvery, commandTimeout, true, func(ctx context.Context) (bool, error) {
		err := e.Get(ctx, key, command)
		return err == nil && len(command.Data[contract.JoinCommandField]) > 0, client.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the operator has not published a command within %s: kubectl windows why %s", commandTimeout,
			name)
	}
	if err != nil {
		return fmt.Errorf("reading secret %s: %w", key.Name, err)
	}
	_, _ = fmt.Fprintf(e.ErrOut, "Run this on the host, in Windows PowerShell as an administrator, before %s.\n"+
		"It is worth one join of one host. Then \"kubectl windows why %s\" shows how far the host is.\n\n",
		command.Data[contract.JoinExpiresField], name)
	_, err = fmt.Fprintf(e.Out, "%s\n", command.Data[contract.JoinCommandField])
	return err
}

// inviteAgain deletes the command of a WindowsInstance, so that the operator publishes a new command. It refuses this
// if a host has used the command, because that host's certificate is valid as long as the WindowsInstance exists. A
// different host then needs a new WindowsInstance.
func (e *editor) inviteAgain(ctx context.Context, instance *v1alpha1.WindowsInstance, lifetime time.Duration) error {
	if err := e.Get(ctx, client.ObjectKeyFromObject(instance), instance); err != nil {
		return fmt.Errorf("reading WindowsInstance %s: %w", instance.Name, err)
	}
	switch {
	case instance.Spec.ByItself == nil:
		return fmt.Errorf("WindowsInstance %s exists, and the operator reaches its host over SSH: choose another "+
			"name, or remove the host first", instance.Name)
	case instance.Status.HostKey != "" || !instance.DeletionTimestamp.IsZero():
		return fmt.Errorf("a host has used the command of %[1]s, or %[1]s is being removed. For another or a "+
			"reinstalled host, run \"kubectl windows remove %[1]s --force\" first", instance.Name)
	}
	err := e.merge(ctx, instance, map[string]any{"spec": map[string]any{"byItself": map[string]any{
		"tokenLifetime": lifetime.String()}}}, "host "+instance.Name)
	if err == nil { // if a host uses the command now, the operator publishes no other command
		err = client.IgnoreNotFound(e.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.operator,
			Name: contract.JoinSecretPrefix + string(instance.UID)}}))
	}
	if err != nil {
		return fmt.Errorf("replacing the command of %s: %w", instance.Name, err)
	}
	return nil
}
