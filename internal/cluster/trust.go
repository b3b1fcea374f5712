package cluster

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	controllerConfig     = "machine-config-controller"
	nameControllerConfig = "the ControllerConfig machine-config-controller"
	nameBootstrapToken   = "the Secret node-bootstrapper-token in openshift-machine-config-operator"
)

// maxBundle is the maximum size of a bundle in bytes. A ConfigMap with two such bundles and all other content stays
// well below the limit of 1 MiB. Real bundles have about 10 KiB.
const maxBundle = 256 << 10

// kubeletCA reads the CA of the client certificate that the API server uses for kubelets. The field's name contains
// "serving", but the machine config operator fills it with kube-apiserver-to-kubelet-client-ca and writes it to
// Linux nodes as /etc/kubernetes/kubelet-ca.crt.
func (r *Reader) kubeletCA(ctx context.Context, facts *blueprint.Facts) (err error) {
	facts.KubeletCA, err = lastOf(ctx, &r.common, facts, named(r.Cached, controllerConfig, nameControllerConfig),
		func(object *machineconfigurationv1.ControllerConfig) (string, error) {
			return bundleOf(object.Spec.KubeAPIServerServingCAData, nameControllerConfig,
				"spec.kubeAPIServerServingCAData", "see whether the cluster operator machine-config is healthy")
		})
	return err
}

// bootstrapCA reads the CA that verifies the API server, as on Linux nodes. It ignores the token in the same Secret.
func (r *Reader) bootstrapCA(ctx context.Context, facts *blueprint.Facts) (err error) {
	key := keyIn(contract.MachineConfigNamespace, contract.BootstrapTokenSecret)
	facts.BootstrapCA, err = lastOf(ctx, &r.common, facts, origin{r.Live, key, nameBootstrapToken},
		func(object *corev1.Secret) (string, error) {
			return bundleOf(object.Data[corev1.ServiceAccountRootCAKey], nameBootstrapToken,
				corev1.ServiceAccountRootCAKey, "delete the Secret, and the cluster creates it again")
		})
	return err
}

// bundleOf calls the function `bundle` for a field of an object. An error names the object, the field and the fix.
func bundleOf(raw []byte, name, field, fix string) (string, error) {
	ca, err := bundle(raw)
	if err != nil {
		return "", incomplete("%s: %s: %s; %s", name, field, err, fix)
	}
	return ca, nil
}

// bundle normalises a PEM bundle: it drops comments and duplicates, and sorts the certificates. So bundles with the
// same certificates have the same result. bundle skips invalid certificates, because kubelet rejects files with them.
func bundle(raw []byte) (string, error) {
	if len(raw) > maxBundle {
		return "", errors.New("the bundle is larger than 256 KiB")
	}
	var certificates [][]byte
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, block.Bytes)
		}
	}
	if len(certificates) == 0 {
		return "", errors.New("there is no certificate in PEM")
	}
	slices.SortFunc(certificates, bytes.Compare)
	var out strings.Builder
	for _, der := range slices.CompactFunc(certificates, bytes.Equal) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.String(), nil
}
