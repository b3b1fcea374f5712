package scene

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// lookHere sets the namespace of the kubeconfig to the operator's namespace. Then `kubectl get wininst` shows the hosts
// without the flag --namespace.
func (s *Scene) lookHere() error {
	config, err := clientcmd.LoadFromFile(s.Cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	for _, c := range config.Contexts {
		c.Namespace = s.options.Namespace
	}
	if err = clientcmd.WriteToFile(*config, s.Cluster.Kubeconfig); err != nil {
		return fmt.Errorf("writing the lab's kubeconfig: %w", err)
	}
	return nil
}
