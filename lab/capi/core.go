// Package capi runs the core controllers of Cluster API against a control plane of the lab, and an infrastructure
// provider whose machines are simulated Windows hosts.
//
// The core controllers, their CRDs and their webhooks are the genuine ones, pinned in lab/clusterapi. Tests of the
// bootstrap provider use this package.
package capi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/port"
)

const (
	// module is the folder of the module that pins Cluster API.
	module = "lab/clusterapi"
	// upstream is the Go module of Cluster API.
	upstream = "sigs.k8s.io/cluster-api"
)

// Core is a process with the core controllers.
type Core struct {
	// Log is the file with the output.
	Log   string
	cmd   *exec.Cmd
	ended chan error
}

// Start installs the CRDs and webhooks of Cluster API, starts the core controllers, and returns when they are healthy.
// Stop ends them. dir receives their certificate and log. progress receives the lines of a build, which takes minutes.
func Start(ctx context.Context, lab *cluster.Cluster, dir string, progress io.Writer) (*Core, error) {
	path, err := cluster.BuildOther(ctx, cluster.BuildOptions{Progress: progress}, module, "cluster-api-core",
		upstream+"/core", "")
	if err != nil {
		return nil, err
	}
	config, err := manifests(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = cluster.InstallCRDs(ctx, lab.Admin(), cluster.CRDOptions{
		Paths: []string{filepath.Join(config, "crd", "bases")}}); err != nil {
		return nil, err
	}
	webhooks, err := port.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer webhooks.Release()
	health, err := port.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer health.Release()
	ca, err := writeCertificate(dir)
	if err != nil {
		return nil, err
	}
	c := &Core{Log: filepath.Join(dir, "cluster-api.log"), ended: make(chan error, 1)}
	if err = c.launch(ctx, path, lab.Kubeconfig, dir, webhooks, health); err != nil {
		return nil, err
	}
	if err = c.untilHealthy(ctx, health.Address()); err == nil {
		err = installWebhooks(ctx, lab, filepath.Join(config, "webhook", "manifests.yaml"), webhooks.Address(), ca)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// manifests returns the folder with the manifests of the pinned version.
func manifests(ctx context.Context) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", upstream)
	cmd.Dir, cmd.Env = filepath.Join(root, filepath.FromSlash(module)), append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding the module %s: %w", upstream, err)
	}
	return filepath.Join(string(bytes.TrimSpace(output)), "core", "config"), nil
}

func (c *Core) launch(ctx context.Context, path, kubeconfig, dir string, webhooks, health port.Port) error {
	output, err := os.Create(c.Log)
	if err != nil {
		return err
	}
	defer output.Close()
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), path,
		"--webhook-port", strconv.Itoa(webhooks.Number), "--webhook-cert-dir", dir, "--health-addr", health.Address(),
		"--diagnostics-address", "127.0.0.1:0", "--insecure-diagnostics",
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")
	c.cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=default", "HOME=" + dir}
	c.cmd.Stdout, c.cmd.Stderr = output, output
	ended, err := cluster.StartChild(c.cmd)
	if err != nil {
		return fmt.Errorf("starting the core controllers: %w", err)
	}
	go func() { c.ended <- ended() }()
	return nil
}

func (c *Core) untilHealthy(ctx context.Context, address string) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			select {
			case err := <-c.ended:
				c.ended <- err
				return false, fmt.Errorf("the core controllers ended: %w", err)
			default:
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
			if err != nil {
				return false, err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false, nil //nolint:nilerr // the core controllers don't listen yet
			}
			return response.StatusCode == http.StatusOK, response.Body.Close()
		})
	if err != nil {
		return fmt.Errorf("waiting for the core controllers: %w; the end of their log: %s", err, c.Tail(2000))
	}
	return nil
}

// Tail returns the end of the log.
func (c *Core) Tail(size int) string {
	content, err := os.ReadFile(c.Log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-size):])
}

// Stop ends the core controllers.
func (c *Core) Stop() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the core controllers: %w", err)
	}
	<-c.ended //nolint:errcheck // ended on request
	return nil
}

// installWebhooks creates the webhook configurations, and writes the address of the process into them.
func installWebhooks(ctx context.Context, lab *cluster.Cluster, path, address string, ca []byte) error {
	clients, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	local := func(config *admissionv1.WebhookClientConfig) {
		url := "https://" + address + *config.Service.Path
		*config = admissionv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var raw json.RawMessage
		if err = documents.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		}
		var kind metav1.TypeMeta
		if err != nil || json.Unmarshal(raw, &kind) != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		switch kind.Kind {
		case "MutatingWebhookConfiguration":
			var hooks admissionv1.MutatingWebhookConfiguration
			if err = json.Unmarshal(raw, &hooks); err != nil {
				return err
			}
			for i := range hooks.Webhooks {
				local(&hooks.Webhooks[i].ClientConfig)
			}
			_, err = clients.AdmissionregistrationV1().MutatingWebhookConfigurations().
				Create(ctx, &hooks, metav1.CreateOptions{})
		case "ValidatingWebhookConfiguration":
			var hooks admissionv1.ValidatingWebhookConfiguration
			if err = json.Unmarshal(raw, &hooks); err != nil {
				return err
			}
			for i := range hooks.Webhooks {
				local(&hooks.Webhooks[i].ClientConfig)
			}
			_, err = clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().
				Create(ctx, &hooks, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("installing the webhooks: %w", err)
		}
	}
}

// writeCertificate writes tls.crt and tls.key for the webhooks into dir. The certificate is its own CA.
func writeCertificate(dir string) (ca []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(port.Loopback)}}
	content, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content})
	return ca, errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), ca, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
			0o600))
}
