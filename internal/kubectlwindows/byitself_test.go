package kubectlwindows

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// waiting returns the WindowsInstance of a host that has not used its command yet, and the Secret with the command.
func waiting() (*v1alpha1.WindowsInstance, *corev1.Secret) {
	return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "win-8", UID: "uid"},
			Spec: v1alpha1.WindowsInstanceSpec{Address: "win-8", ByItself: &v1alpha1.ByItself{}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.JoinSecretPrefix + "uid"},
			Data: map[string][]byte{contract.JoinCommandField: []byte("old command")}}
}

func TestA85_AHostThatHasNotJoinedGetsAnotherCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		instance, command := waiting()
		c := fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(instance, command).Build()
		var out bytes.Buffer
		e := &editor{reader: &reader{Client: c, operator: "ns"}, IOStreams: genericiooptions.IOStreams{Out: &out,
			ErrOut: &bytes.Buffer{}}}
		go func() { // simulates the operator
			key := client.ObjectKeyFromObject(command)
			for !apierrors.IsNotFound(c.Get(context.Background(), key, &corev1.Secret{})) {
				time.Sleep(time.Second)
			}
			_, next := waiting()
			next.Data[contract.JoinCommandField] = []byte("new command")
			_ = c.Create(context.Background(), next)
		}()
		if err := e.addByItself(t.Context(), "win-8", time.Hour); err != nil || out.String() != "new command\n" {
			t.Errorf("%v: %s", err, out.String())
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(instance), instance); err != nil ||
			instance.Spec.ByItself.TokenLifetime.Duration != time.Hour {
			t.Errorf("%v: %+v", err, instance.Spec.ByItself)
		}
	})
}

// A host's certificate is valid as long as its WindowsInstance exists. So with a second command for the same
// WindowsInstance, a second host could join under the name of the first host.
func TestA85_ACommandThatWasUsedIsNotReplaced(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(*v1alpha1.WindowsInstance){
		"a host got a certificate": func(i *v1alpha1.WindowsInstance) { i.Status.HostKey = "x509 x" },
		"the instance leaves": func(i *v1alpha1.WindowsInstance) {
			i.Finalizers, i.DeletionTimestamp = []string{contract.InstanceFinalizer}, &metav1.Time{Time: time.Now()}
		},
		"the operator uses SSH": func(i *v1alpha1.WindowsInstance) {
			i.Spec.ByItself, i.Spec.Username = nil, "Administrator"
		},
	} {
		instance, command := waiting()
		alter(instance)
		c := fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(instance, command).Build()
		e := &editor{reader: &reader{Client: c, operator: "ns"}}
		err := e.addByItself(t.Context(), "win-8", time.Hour)
		if err == nil || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %v", name, err)
		}
		if err = c.Get(t.Context(), client.ObjectKeyFromObject(command), command); err != nil {
			t.Errorf("%s: the command was deleted: %v", name, err)
		}
	}
}
