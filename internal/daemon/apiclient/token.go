package apiclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// TokenLife is the requested lifetime of the tokens for services.
const TokenLife = time.Hour

// RequestToken requests a token for a ServiceAccount, bound to a Node. It returns the token and its lifetime.
func RequestToken(ctx context.Context, client dynamic.Interface, namespace, account, node string,
	uid types.UID) (token string, life time.Duration, err error) {
	seconds := int64(TokenLife.Seconds())
	request, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&authenticationv1.TokenRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: namespace},
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node,
				UID: uid}},
	})
	if err != nil {
		return "", 0, fmt.Errorf("encoding a token request: %w", err)
	}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	object, err := client.Resource(accounts).Namespace(namespace).Create(ctx,
		&unstructured.Unstructured{Object: request}, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", 0, fmt.Errorf("requesting a token of %s: %w", account, err)
	}
	var answer authenticationv1.TokenRequest
	if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &answer); err != nil {
		return "", 0, fmt.Errorf("decoding a token of %s: %w", account, err)
	}
	// Use only the API server's clock, because the host's clock may be wrong.
	life = answer.Status.ExpirationTimestamp.Sub(answer.CreationTimestamp.Time)
	if answer.Status.Token == "" || life <= 0 || answer.CreationTimestamp.IsZero() {
		return "", 0, fmt.Errorf("requesting a token of %s: the answer contains no valid token", account)
	}
	return answer.Status.Token, life, nil
}

// WriteToken writes the two files that a service reads: its kubeconfig, and its token, which the service reads
// repeatedly. The kubeconfig gets the API server's address and CA from the daemon's kubeconfig. If the service's
// kubeconfig already has a CA, WriteToken keeps that CA. Only Point replaces that CA.
func WriteToken(files winos.Files, daemonKubeconfig string, to contract.ServiceToken, token string) error {
	server, err := readKubeconfig(files, daemonKubeconfig)
	if err != nil {
		return err
	}
	have, err := winos.ReadFile(files, to.Kubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the kubeconfig of %s: %w", to.Account, err)
	}
	if present, err := ServerOf(have); err == nil {
		server.CA = present.CA
	}
	content, err := Kubeconfig(to.Account, "", server, clientcmdapi.AuthInfo{TokenFile: to.Token})
	if err != nil {
		return err
	}
	// Write the token first: the program needs it, and is started as soon as the kubeconfig exists.
	err = winos.WriteFile(files, to.Token, bytes.NewReader([]byte(token)), winos.AccessAdministrators)
	if err != nil {
		return fmt.Errorf("writing the token of %s: %w", to.Account, err)
	}
	if bytes.Equal(have, content) {
		return nil
	}
	err = winos.WriteFile(files, to.Kubeconfig, bytes.NewReader(content), winos.AccessAdministrators)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", to.Account, err)
	}
	return nil
}
