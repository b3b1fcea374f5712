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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Objects that hold certificates.
const (
	controllerConfig     = "machine-config-controller"
	nameControllerConfig = "the ControllerConfig machine-config-controller"
	nameBootstrapToken   = "the Secret node-bootstrapper-token in openshift-machine-config-operator"
)

// maxBundle keeps two bundles and everything else well below the size limit of a ConfigMap, 1 MiB.
// Real ones have about 10 KiB.
const maxBundle = 256 << 10

// kubeletCA reads the CA of the client certificate that the API server shows kubelets. The field's
// name says "serving", but the machine config operator fills it with
// kube-apiserver-to-kubelet-client-ca and writes it to Linux nodes as
// /etc/kubernetes/kubelet-ca.crt.
func (r *Reader) kubeletCA(ctx context.Context, facts *blueprint.Facts) (err error) {
	facts.KubeletCA, err = last(ctx, &r.common, facts, nameControllerConfig, func() (string, error) {
		var object machineconfigurationv1.ControllerConfig
		err := get(ctx, r.Cached, &object, client.ObjectKey{Name: controllerConfig}, nameControllerConfig)
		if err != nil {
			return "", err
		}
		ca, err := bundle(object.Spec.KubeAPIServerServingCAData)
		if err != nil {
			return "", incomplete("%s: spec.kubeAPIServerServingCAData: %s; see whether the cluster operator "+
				"machine-config is healthy", nameControllerConfig, err)
		}
		return ca, nil
	})
	return err
}

// bootstrapCA is the CA of the API server, which nodes have, too. The token beside it is never looked at.
func (r *Reader) bootstrapCA(ctx context.Context, facts *blueprint.Facts) (err error) {
	facts.BootstrapCA, err = last(ctx, &r.common, facts, nameBootstrapToken, func() (string, error) {
		var object corev1.Secret
		key := client.ObjectKey{Namespace: contract.MachineConfigNamespace, Name: contract.BootstrapTokenSecret}
		if err := get(ctx, r.Live, &object, key, nameBootstrapToken); err != nil {
			return "", err
		}
		ca, err := bundle(object.Data[corev1.ServiceAccountRootCAKey])
		if err != nil {
			return "", incomplete("%s: %s: %s; delete the Secret, and the cluster makes it anew", nameBootstrapToken,
				corev1.ServiceAccountRootCAKey, err)
		}
		return ca, nil
	})
	return err
}

// bundle gives the certificates of a PEM bundle in one form: each once, in a fixed order, without
// comments, so that bundles with equal certificates are equal. Certificates that don't parse are
// left out: kubelet would refuse the whole file because of one.
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
