package program

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// nameRequests makes the fake clientset set the name and the UID of a request, as the API server does. The fake
// clientset doesn't support field selectors, so nameRequests keeps only the newest request.
func nameRequests(client *fake.Clientset) {
	last := ""
	client.PrependReactor("create", "certificatesigningrequests",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			create, ok := action.(clienttesting.CreateAction)
			if !ok {
				return false, nil, nil
			}
			if request, ok := create.GetObject().(*certificatesv1.CertificateSigningRequest); ok {
				request.UID = uuid.NewUUID()
				request.Name = request.GenerateName + string(request.UID)
				if last != "" {
					if err := client.Tracker().Delete(create.GetResource(), "", last); err != nil {
						return true, nil, err
					}
				}
				last = request.Name
			}
			return false, nil, nil
		})
}
