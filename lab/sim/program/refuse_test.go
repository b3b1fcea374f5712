package program_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

const kubeProxyConfig = `{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "kernelspace",
	"clientConnection": {"kubeconfig": "C:\\k\\kubeconfig"}, "clusterCIDR": "10.132.0.0/24", "hostnameOverride": "node",
	"featureGates": {"WinDSR": true, "WinOverlay": true},
	"winkernel": {"networkName": "OVNKubernetesHybridOverlayNetwork", "sourceVip": "10.132.0.2", "enableDSR": true}}`

const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
	"clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {"token": "t"}}]}`

const webConfig = "tls_server_config:\n  cert_file: C:\\k\\tls\\certs\\tls.crt\n  key_file: " +
	"C:\\k\\tls\\certs\\tls.key\n"

func TestProgramsRefuseWhatTheRealOnesRefuse(t *testing.T) {
	t.Parallel()
	const (
		kubelet = `C:\k\kubelet.exe --config=C:\k\kubelet.conf --kubeconfig=C:\k\kubeconfig `
		proxy   = `C:\k\kube-proxy.exe --windows-service `
		overlay = `C:\k\hybrid-overlay-node.exe --bootstrap-kubeconfig=C:\k\kubeconfig --cert-dir=C:\k --k8s-cacert=C:\k\kubelet-ca.crt `
	)
	tests := map[string]struct {
		files map[string]string
		line  string
		says  string
	}{
		"kubelet: a flag that it does not know": {line: kubelet + `--frobnicate=1`,
			says: "unknown flag: --frobnicate"},
		"kubelet: an argument that is no flag": {line: kubelet + `now`, says: "unknown command"},
		"kubelet: a missing configuration": {line: `C:\k\kubelet.exe --config=C:\k\absent`,
			says: "loading kubelet's configuration"},
		"kubelet: a configuration that is no YAML": {line: kubelet,
			files: map[string]string{contract.PathKubeletConfig: "{"}, says: "kubelet.conf"},
		"kubelet: a field that it does not know": {
			line: kubelet, files: map[string]string{contract.PathKubeletConfig: strings.Replace(kubeletConfig,
				"maxPods", "maxPod", 1)}, says: "unknown field",
		},
		"kubelet: another kind": {
			line: kubelet, files: map[string]string{contract.PathKubeletConfig: strings.Replace(kubeletConfig,
				`"KubeletConfiguration"`, `"Pod"`, 1)}, says: "no kind",
		},
		"kubelet: no runtime endpoint": {
			line: kubelet, files: map[string]string{contract.PathKubeletConfig: strings.Replace(kubeletConfig,
				"npipe://./pipe/containerd-containerd", "", 1)}, says: "containerRuntimeEndpoint",
		},
		"kubelet: a taint without a known effect": {
			line: kubelet, files: map[string]string{contract.PathKubeletConfig: strings.Replace(kubeletConfig,
				"NoSchedule", "Never", 1)}, says: "invalid taint effect",
		},
		"kubelet: a client CA that is no certificate": {line: kubelet,
			files: map[string]string{contract.PathKubeletCA: "x"}, says: "client CA"},
		"kubelet: a label that it may not give itself": {line: kubelet +
			`--node-labels=node-role.kubernetes.io/worker=`, says: "node-role.kubernetes.io/worker"},
		"kubelet: an address that is none": {line: kubelet + `--node-ip=x`, says: "bad --node-ip"},
		"kubelet: no credential at all":    {line: kubelet, says: "loading kubeconfig"},

		"kube-proxy: no configuration":        {line: proxy, says: "--config is needed"},
		"kube-proxy: a missing configuration": {line: proxy + `--config=C:\k\absent`, says: "absent"},
		"kube-proxy: a field that it does not know": {
			line:  proxy + `--config=C:\k\kube-proxy.conf`,
			files: map[string]string{contract.PathKubeProxyConfig: strings.Replace(kubeProxyConfig, "mode", "mood", 1)},
			says:  "unknown field",
		},
		"kube-proxy: no source address": {
			line: proxy + `--config=C:\k\kube-proxy.conf`,
			files: map[string]string{contract.PathKubeProxyConfig: strings.Replace(kubeProxyConfig, "10.132.0.2", "",
				1)}, says: "source-vip",
		},
		"kube-proxy: a missing kubeconfig": {line: proxy + `--config=C:\k\kube-proxy.conf`, says: "loading kubeconfig"},
		"kube-proxy: a variable that nobody replaced": {
			line: proxy + `--config=C:\k\kube-proxy.conf`,
			files: map[string]string{contract.PathKubeProxyConfig: strings.Replace(kubeProxyConfig, "10.132.0.0/24",
				"NODE_SUBNET", 1)}, says: "clusterCIDR",
		},

		"containerd: a missing configuration": {line: `C:\k\containerd\containerd.exe --config=C:\k\absent`,
			says: "loading TOML"},
		"containerd: a configuration that is no TOML": {
			line:  `C:\k\containerd\containerd.exe --config=C:\k\containerd\containerd_conf.toml`,
			files: map[string]string{contract.PathContainerdConfig: "[x"}, says: "loading TOML",
		},
		"containerd: version 1": {
			line:  `C:\k\containerd\containerd.exe --config=C:\k\containerd\containerd_conf.toml`,
			files: map[string]string{contract.PathContainerdConfig: "version = 1\n"}, says: "version 2 or 3",
		},
		"containerd: an unknown level": {line: `C:\k\containerd\containerd.exe --log-level=loud`, says: "log level"},
		"containerd: a log in no directory": {
			line: `C:\k\containerd\containerd.exe --config=C:\k\containerd\containerd_conf.toml --log-file=C:\absent\x.log`, says: "log file",
		},

		"hybrid overlay: no node":         {line: overlay, says: "missing node name"},
		"hybrid overlay: no kubeconfig":   {line: overlay + `--node=n`, says: "loading kubeconfig"},
		"hybrid overlay: an unknown flag": {line: overlay + `--node=n --colour=red`, says: "unknown flag"},
		"exporter: an unknown collector": {line: `C:\k\windows_exporter.exe --collectors.enabled=cpu,stars`,
			says: "unknown collector stars"},
		"exporter: a missing TLS key pair": {line: `C:\k\windows_exporter.exe --web.config.file=C:\k\tls\web.yaml`,
			files: map[string]string{`C:\k\tls\web.yaml`: webConfig}, says: "tls.crt"},
		"csi-proxy: an unknown flag": {line: `C:\k\csi-proxy.exe -colour=red`, says: "unknown flag"},
		"cloud node manager: no node name": {line: `C:\k\azure-cloud-node-manager.exe --kubeconfig=C:\k\kubeconfig`,
			says: "node-name"},
		"cloud node manager: no kubeconfig": {
			line: `C:\k\azure-cloud-node-manager.exe --node-name=n --kubeconfig=C:\k\kubeconfig`,
			says: "loading kubeconfig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, "refuses", program.Options{})
			b.write(t, contract.PathKubeProxyConfig, kubeProxyConfig)
			for path, content := range test.files {
				b.write(t, path, content)
			}
			output, code := b.exec(t, test.line)
			if code != 1 || !strings.Contains(output, test.says) {
				t.Errorf("got exit code %d and %q; want 1 and %q", code, output, test.says)
			}
		})
	}
}

func TestKubeProxyMakesTheEndpointOfItsSourceAddressWhereThereIsNone(t *testing.T) {
	t.Parallel()
	b := newBox(t, "proxies", program.Options{ProxyStart: 10 * time.Millisecond, Poll: time.Millisecond})
	b.write(t, contract.PathKubeProxyConfig, kubeProxyConfig)
	b.write(t, contract.PathKubeconfig, kubeconfig)
	b.start(t, "kube-proxy", `C:\k\kube-proxy.exe --config=C:\k\kube-proxy.conf --windows-service`)
	for _, boot := range []string{"first", "second"} {
		_, err := b.CreateHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork,
			Subnet: netip.MustParsePrefix("10.132.0.0/24")})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the endpoint on the "+boot+" network", func() error {
			all, err := b.HNSEndpoints(contract.HybridOverlayNetwork)
			if want := netip.MustParseAddr("10.132.0.2"); err == nil && !slices.Equal(all, []sim.HNSEndpoint{{Address: want}}) {
				err = fmt.Errorf("the objects are %+v", all)
			}
			return err
		})
		if err := b.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
			t.Fatal(err)
		}
	}
	b.stop(t, "kube-proxy")
}

func TestServicesRunUntilTheyAreStoppedAndLog(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ command, log string }{
		"containerd": {containerdCommand, `C:\var\log\containerd\containerd.log`},
		"kube-proxy": {
			`C:\k\kube-log-runner.exe -log-file=C:\var\log\kube-proxy\kube-proxy.log -log-file-size=100M C:\k\kube-proxy.exe --config=C:\k\kube-proxy.conf --windows-service`,
			`C:\var\log\kube-proxy\kube-proxy.log`,
		},
		"windows_exporter": {
			`C:\k\windows_exporter.exe --collectors.enabled=cpu,logical_disk,net,os,service,system,container,memory,cpu_info --log.level=info --log.file=C:\var\log\windows_exporter\windows_exporter.log`,
			`C:\var\log\windows_exporter\windows_exporter.log`,
		},
		"csi-proxy": {
			`C:\k\csi-proxy.exe -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service -v=2`,
			`C:\var\log\csi-proxy\csi-proxy.log`,
		},
		"cloud-node-manager": {
			`C:\k\kube-log-runner.exe -log-file=C:\var\log\cloud-node-manager\cloud-node-manager.log C:\k\azure-cloud-node-manager.exe --windows-service --node-name=n --wait-routes=false --kubeconfig=C:\k\kubeconfig`,
			`C:\var\log\cloud-node-manager\cloud-node-manager.log`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, "serves", program.Options{})
			b.write(t, contract.PathKubeProxyConfig, kubeProxyConfig)
			b.write(t, contract.PathKubeconfig, kubeconfig)
			for range 2 { // the second start must append to the log of the first
				b.start(t, name, test.command)
				if name == "windows_exporter" {
					if ports, err := b.Host().Network.Listening(context.Background()); err != nil ||
						ports[contract.MetricsPort] == "" {
						t.Errorf("the listening ports are %v, %v", ports, err)
					}
				}
				b.stop(t, name)
			}
			if strings.Count(b.read(t, test.log), "stand-in started") != 2 {
				t.Errorf("the log contains %s", b.read(t, test.log))
			}
			if state, err := b.Host().Services.Get(t.Context(), name); err != nil ||
				state.State != winos.ServiceStopped {
				t.Errorf("after the stop, the service is %+v, %v", state, err)
			}
		})
	}
}
