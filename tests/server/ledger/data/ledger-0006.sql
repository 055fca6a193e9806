BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79544064702872776988e+09,'officer','population.create','people',NULL,NULL,'f043aab4a85eb8abf4fc147458806fe4','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"4ffa0b88f0b34255d85ae586583c01d19afc86db1389817e11a28ed66fdc0024","simulated":false,"two_persons":false,"unit":"user"}','40fc48489621f352fba7d20e6648a0e9b579215a81a08dbe5e1ec5c57561266e','d5c5ee549a33118db767feed6cf246df4e7af573e2b26c747bf68d952bcac4de');
INSERT INTO "audit" VALUES(2,1.79544064716688513754e+09,'officer','population.raise','people',NULL,NULL,'91e03c028aad0a3bf21d8c176795f35e','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','d5c5ee549a33118db767feed6cf246df4e7af573e2b26c747bf68d952bcac4de','75481a182f0ed8c1d181874b26ba21b020b880d994c09715ac5536461aaf4bdf');
INSERT INTO "audit" VALUES(3,1.79544064719594573969e+09,'officer','population.create','others',NULL,NULL,'bc953061a8e47de0c3468add603aaa22','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"5c497b23c418db3c1731d0c0465d93b455fa8083aecfc9117fa6913e46de09b9","simulated":false,"two_persons":false,"unit":"user"}','75481a182f0ed8c1d181874b26ba21b020b880d994c09715ac5536461aaf4bdf','9e15615e7711e7d68047f6fea628a5de3c53b8e408a9cdbd34f3b0034791d9b3');
INSERT INTO "audit" VALUES(4,1.7954406472096877098e+09,'officer','population.close','others',NULL,NULL,'9299e7c8f34b4ed44dd8d9567d5058b7','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','9e15615e7711e7d68047f6fea628a5de3c53b8e408a9cdbd34f3b0034791d9b3','bd02177395021e4c8d037417eede097143f90bec6a41dfb55a812f0e59e809ff');
INSERT INTO "audit" VALUES(5,1.79544064722918677331e+09,'officer','token.create',NULL,NULL,NULL,'db5f0be7f7877fd1c695c74448e49fb3','{"digest":"7a0d131bbb76feb7dce76181a663aa3e268eb3ecf82e69c1eb8fb44a45acf10c","expires_at":null,"id":"0bfef862e076","name":"page","populations":null,"scopes":["read"]}','bd02177395021e4c8d037417eede097143f90bec6a41dfb55a812f0e59e809ff','640ff583bf7799d46937129ddb25ac7ae0be6cdf90ed7232e0afe8ff6c786d87');
INSERT INTO "audit" VALUES(6,1.79544064723602390292e+09,'officer','token.create',NULL,NULL,NULL,'d2db920acaa52c2a7467202644c5eab0','{"digest":"3853143f53b6d3842674fbeb7b7b5098cba78453ce841284c323d331719b5325","expires_at":null,"id":"c1e8cf4e83c3","name":"office","populations":null,"scopes":["read","admin"]}','640ff583bf7799d46937129ddb25ac7ae0be6cdf90ed7232e0afe8ff6c786d87','e36de9597779957cb35bc83404aa7e98ace9214f2d423b2ef5f155362f21a84b');
INSERT INTO "audit" VALUES(7,1.79544064723936581612e+09,'officer','token.revoke',NULL,NULL,NULL,'13de5081cabeaebbe15c78a62938323f','{"id":"0bfef862e076"}','e36de9597779957cb35bc83404aa7e98ace9214f2d423b2ef5f155362f21a84b','04c5417db06b112cf79b2fc2dc7d4ab421fdd43b66c213c274a48ea6a0cb8741');
INSERT INTO "audit" VALUES(8,1.79544064726464819908e+09,'test','run.start','people','faf6d4985601',NULL,'d560ce30e1468e767fa050c71638fd79','{"accounting":"worst-case","format":3,"key_commitment":"bb996e36a17a68e303f3d0939caa7ab6075440358b13c068ed5debd3f12faadd","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','04c5417db06b112cf79b2fc2dc7d4ab421fdd43b66c213c274a48ea6a0cb8741','e53e18c0eab1f139ef830c2c67dd4a4169e3a15af33c88e3e14f4f5e49b44fae');
INSERT INTO "audit" VALUES(9,1.79544064729800033567e+09,'run faf6d4985601','users.register','people','faf6d4985601',NULL,'f45e28a46eca30996cf19ecaa93c5651','{"count":40,"first":0,"hashes":"ac07b7835db1cd5f3687780840f2c4fd67049042de4f48ab6bb39005a366458f"}','e53e18c0eab1f139ef830c2c67dd4a4169e3a15af33c88e3e14f4f5e49b44fae','e4bff8dfffc3e0c9add2b89a9a770459455eee219364b5e86bdb0f4393042441');
INSERT INTO "audit" VALUES(10,1.79544064732055234914e+09,'run faf6d4985601','round.open','people','faf6d4985601',0,'d029138c26387bb88b253b30913b30be','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','e4bff8dfffc3e0c9add2b89a9a770459455eee219364b5e86bdb0f4393042441','287858040e293d8464c8b2e4ea139cf6afc4fe0dc1d8b72f4fe4ec2028e41008');
INSERT INTO "audit" VALUES(11,1.79544064733300900464e+09,'run faf6d4985601','round.commit','people','faf6d4985601',0,'81038d81f26c13c4092951ef5606a7ae','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','287858040e293d8464c8b2e4ea139cf6afc4fe0dc1d8b72f4fe4ec2028e41008','77edec8e0a13cb4a3f0af97994bdfda43638ee2dcb8d2bb9440399a9321435cf');
INSERT INTO "audit" VALUES(12,1.79544064735579872137e+09,'run faf6d4985601','round.open','people','faf6d4985601',1,'ec63842c7cb4f10fe79cd2093c7b5582','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','77edec8e0a13cb4a3f0af97994bdfda43638ee2dcb8d2bb9440399a9321435cf','c74b73d75f87d0db31aa01e604f570d34793a5ccdbf7fc894a5c0b4e531d4813');
INSERT INTO "audit" VALUES(13,1.79544064736453914642e+09,'run faf6d4985601','round.commit','people','faf6d4985601',1,'c43d6e39aa48b65c025bc0afad69e21f','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','c74b73d75f87d0db31aa01e604f570d34793a5ccdbf7fc894a5c0b4e531d4813','6aa667cb573f84d32607d79bfeed2b3112baf1d8c8f8886c5ebbdb727ee4096e');
INSERT INTO "audit" VALUES(14,1.79544064737794780732e+09,'run faf6d4985601','round.open','people','faf6d4985601',2,'ba8c1277d4f0c8bf876e6ca17d52b2c2','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','6aa667cb573f84d32607d79bfeed2b3112baf1d8c8f8886c5ebbdb727ee4096e','4d96066ab54391fe2db26f03a3971f6c1454434251c56f028546ce85e2b63e89');
INSERT INTO "audit" VALUES(15,1.79544064738486909863e+09,'run faf6d4985601','round.commit','people','faf6d4985601',2,'2249f64655c101c90bc5edab4c9447cd','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','4d96066ab54391fe2db26f03a3971f6c1454434251c56f028546ce85e2b63e89','22f911780e4e0f7ea13f9e96b9b27a0c4093a24a9c41cd2d2f3940c350370a65');
INSERT INTO "audit" VALUES(16,1.79544064740012788775e+09,'faf6d4985601','run.finish','people','faf6d4985601',NULL,'22e287f210310ebac3707256d9e8f4b7','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','22f911780e4e0f7ea13f9e96b9b27a0c4093a24a9c41cd2d2f3940c350370a65','6c14c8833402d8e2bcb05f489e6d8b45668aeccaaf3f4bc44897fd0452e9f0b3');
INSERT INTO "audit" VALUES(17,1.7954406474303154945e+09,'test','run.start','people','6f1c1924251c',NULL,'4eb01c4d755a5bd81b7c70db72e84827','{"accounting":"individual","format":3,"key_commitment":"30de239430ee86df7bd29976e8101a4ab22a7bb7509e9cc50b9e57c0eeb40d61","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6c14c8833402d8e2bcb05f489e6d8b45668aeccaaf3f4bc44897fd0452e9f0b3','305e0faaab077fbac0aee52319741c461a7525f0c9ec34fdb836bddc749f06b4');
INSERT INTO "audit" VALUES(18,1.79544064745083522798e+09,'run 6f1c1924251c','round.open','people','6f1c1924251c',0,'8d23c7d3eabe1764b049a355619cbcb0','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','305e0faaab077fbac0aee52319741c461a7525f0c9ec34fdb836bddc749f06b4','019c88650de218ff0a9ee55de11a898f76f182c5bdc4d5957030680c7d12c8ed');
INSERT INTO "audit" VALUES(19,1.79544064745835232734e+09,'run 6f1c1924251c','round.commit','people','6f1c1924251c',0,'81d92194a91fabbcda95a79dcc59e015','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','019c88650de218ff0a9ee55de11a898f76f182c5bdc4d5957030680c7d12c8ed','41c8d6e38744fec8639a26d7f0c0b978a7302bc37905758690b05fa7365a68e9');
INSERT INTO "audit" VALUES(20,1795440647.48772,'6f1c1924251c','run.finish','people','6f1c1924251c',NULL,'76c89e2aea7eea6324ff9a916aab6791','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','41c8d6e38744fec8639a26d7f0c0b978a7302bc37905758690b05fa7365a68e9','ea2681cbed0946b7a9bafd9da7fec0f03c2f0f0a19e195321e9b0f77fbb7e42d');
INSERT INTO "audit" VALUES(21,1.79544064751351523396e+09,'test','run.start','people','12093a1ca18d',NULL,'2e749260104dc999fc031c7556370462','{"accounting":"individual","format":3,"key_commitment":"dc493d67e85cb32e0521e32b1f1c6f8357e923d17d492b4009cbb96e55e0175f","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','ea2681cbed0946b7a9bafd9da7fec0f03c2f0f0a19e195321e9b0f77fbb7e42d','87368e663114c103c43a23f9142c974153f291025a6da31e5f94c9a9112086fa');
INSERT INTO "audit" VALUES(22,1.79544064753734803198e+09,'run 12093a1ca18d','round.open','people','12093a1ca18d',0,'395ec0731bb66d54f6d9c09048bf91a4','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','87368e663114c103c43a23f9142c974153f291025a6da31e5f94c9a9112086fa','5d0a1081cc10e9493fc5444406eab10b20ffe84b45bcf4165aac5071c8b5adda');
INSERT INTO "audit" VALUES(23,1.79544064755131673816e+09,'run 12093a1ca18d','round.commit','people','12093a1ca18d',0,'7e7f619dd2f06f10f17d77fc06526784','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','5d0a1081cc10e9493fc5444406eab10b20ffe84b45bcf4165aac5071c8b5adda','faf3376734ae343db190d6798b8c69751944c13332d1576d6b3dead311607759');
INSERT INTO "audit" VALUES(24,1.79544064755887508395e+09,'12093a1ca18d','run.finish','people','12093a1ca18d',NULL,'3b9918852a5677306eb308fcf25644ec','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','faf3376734ae343db190d6798b8c69751944c13332d1576d6b3dead311607759','b0a5df4561984d6189e2a10b60e9d01acef270da995ab23b8ffda14668395a10');
INSERT INTO "audit" VALUES(25,1.79544064759598970409e+09,'trainer','charge.reserve','people',NULL,NULL,'2877769b133bfb34402d7aa51f300935','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','b0a5df4561984d6189e2a10b60e9d01acef270da995ab23b8ffda14668395a10','ef6a43934381a714b883e76b473ba58fc68c37cbe772931d1ae3300c3498e824');
INSERT INTO "audit" VALUES(26,1.79544064762064266207e+09,'trainer','charge.commit','people',NULL,NULL,'954b29b62c9d31edb00a73b1ac2bf2e1','{"key":"dp-sgd-1"}','ef6a43934381a714b883e76b473ba58fc68c37cbe772931d1ae3300c3498e824','f91e8e85f62d8e1fc47de9a8b55a43557e6a3ee50afa7e467ee957ddf894ff9f');
INSERT INTO "audit" VALUES(27,1.79544064768484115603e+09,'trainer','charge.reserve','people',NULL,NULL,'c8e65a5a134f7f5d905da00b4dc047de','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','f91e8e85f62d8e1fc47de9a8b55a43557e6a3ee50afa7e467ee957ddf894ff9f','6ae89ddd16db4956857d9fb7cb6f51ad0be054abc3e9ea80c86208f6e279bd2a');
INSERT INTO "audit" VALUES(28,1.79544064769624590873e+09,'test','run.start','people','c08bdd3c1e0f',NULL,'22f04770d24087879e4ac224dca830f3','{"accounting":"individual","format":3,"key_commitment":"f31334faf6f83185e1692ca5874efa6ae5affcd4e2058116b62a9b6a12bbdbb7","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6ae89ddd16db4956857d9fb7cb6f51ad0be054abc3e9ea80c86208f6e279bd2a','558d558a51e69d42318e688e281edb951a381b9bbfe8282a320dab5756effb0f');
INSERT INTO "audit" VALUES(29,1.79544064771234560019e+09,'run c08bdd3c1e0f','round.open','people','c08bdd3c1e0f',0,'41dbc3a6c523c8ff10c14fdaf5490592','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','558d558a51e69d42318e688e281edb951a381b9bbfe8282a320dab5756effb0f','0641daff5621a4ef2641b3411e1e38e629f8e21063e65749af13488eb731cfc4');
INSERT INTO "audit" VALUES(30,1.79544064771844744683e+09,'run c08bdd3c1e0f','round.commit','people','c08bdd3c1e0f',0,'e0c6ba84a0a83d71e4a369db3f3621f2','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','0641daff5621a4ef2641b3411e1e38e629f8e21063e65749af13488eb731cfc4','974b093c5a1228c2635fffbdd363b1ac0367931c5f5a56fa3333ca720aa93c63');
INSERT INTO "audit" VALUES(31,1.79544064772059965137e+09,'run c08bdd3c1e0f','run.interrupt','people','c08bdd3c1e0f',NULL,'444e1998b20e5ce0846b6de030555251','{"message":""}','974b093c5a1228c2635fffbdd363b1ac0367931c5f5a56fa3333ca720aa93c63','3646d4c20c5f4b49e26d34aea1ef9fd5a74aa79685853cef836022a7cb520e18');
INSERT INTO "audit" VALUES(32,1.79544064773999762539e+09,'test','run.start','people','89aa68390415',NULL,'e5fb92205e3c338a86e8f984a15c8b27','{"accounting":"worst-case","format":3,"key_commitment":"460f0076c0266b41564ffc9870020557755065316fa163a0044e64f53041f02c","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','3646d4c20c5f4b49e26d34aea1ef9fd5a74aa79685853cef836022a7cb520e18','727446031e4a8f9d3dee448948e25167b5b9767499d2ff620c30c5d26074baa5');
INSERT INTO "audit" VALUES(33,1.79544064775286507608e+09,'run 89aa68390415','round.open','people','89aa68390415',0,'4b293c9eaddde253e196612dfc91ea11','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','727446031e4a8f9d3dee448948e25167b5b9767499d2ff620c30c5d26074baa5','53ebe0806c8ff0ad182a5cf9848e6c226d7b189bdb6219663665cd7045fd2eb8');
INSERT INTO "audit" VALUES(34,1.79544064775947856903e+09,'run 89aa68390415','round.void','people','89aa68390415',0,'ee62ec9f4eb60cbcbd1935f433337590','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','53ebe0806c8ff0ad182a5cf9848e6c226d7b189bdb6219663665cd7045fd2eb8','0608dff4d744afbb67631d49fa78dcccb1fc87730dc8b66969a51ba397711d85');
INSERT INTO "audit" VALUES(35,1.79544064776776862149e+09,'run 89aa68390415','round.open','people','89aa68390415',0,'729eebacdc562bc7d924996874d0cf9c','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','0608dff4d744afbb67631d49fa78dcccb1fc87730dc8b66969a51ba397711d85','d5f16cb14593a22469464cc83bc8a1e380e9d659ae149e8cd66587ba54536a71');
INSERT INTO "audit" VALUES(36,1.79544064778402161601e+09,'run 89aa68390415','round.commit','people','89aa68390415',0,'d19e6f59c806c00a32b665561c35f185','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','d5f16cb14593a22469464cc83bc8a1e380e9d659ae149e8cd66587ba54536a71','9f621dacd34442a402a076dd4b472f2982b9943755ac1757ac7bf920df59382f');
INSERT INTO "audit" VALUES(37,1.79544064780345940593e+09,'run 89aa68390415','users.register','people','89aa68390415',NULL,'9fcab35561a22b55bf2b96f7113cfae2','{"count":10,"first":40,"hashes":"6d924f91b18144276df97bca691fa8eb33e1c5180f9ab3e987b1ff9a905902d7","pledged":{"c08bdd3c1e0f":274877906944}}','9f621dacd34442a402a076dd4b472f2982b9943755ac1757ac7bf920df59382f','b25f139f0a3a0ef4a4b9ab59b4fdc22a79d7819f9d7d4c1db03f2796f583d62b');
INSERT INTO "audit" VALUES(38,1.7954406478164868355e+09,'run 89aa68390415','round.open','people','89aa68390415',1,'80653e8a0e7eeb65e81abcb2557863e4','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','b25f139f0a3a0ef4a4b9ab59b4fdc22a79d7819f9d7d4c1db03f2796f583d62b','a16520bfceea186e3a7f1fecd3e1173990488d0d9ceb07fc70dcbd548ae9ca3f');
INSERT INTO "audit" VALUES(39,1.79544064782833576198e+09,'officer','population.create','secret',NULL,NULL,'125cfcf4169a14a1b477d02f8d9821a1','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-05,"epsilon":8.0,"leak":1.0000000000000002e-06,"reservation_seconds":null,"salt":"e859e81c1d4243af25fee45b7d6e858763a03aefb985a3514071730195da7b8e","simulated":false,"two_persons":false,"unit":"user"}','a16520bfceea186e3a7f1fecd3e1173990488d0d9ceb07fc70dcbd548ae9ca3f','f683507ef776983e6f40020420de170ca51321849e5c19109f4a7aeaf5681f50');
INSERT INTO "audit" VALUES(40,1.79544064926944804197e+09,'test','run.start','secret','b044e80cd52b',NULL,'213ad635df3a5292c263fd90409e96dd','{"accounting":"worst-case","format":3,"key_commitment":"a72945f90391717a98e25f4a5493305eba131ad8d5ae9d356fdf86eaf38c16a8","most":null,"noise_source":"secure","plan":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","plan_digest":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","planned":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,3]]}","price":"{\"leak\":1e-07,\"mu_squared\":0.007437336250795522}","rounds":4,"strategy":null,"trust_node_ids":false}','f683507ef776983e6f40020420de170ca51321849e5c19109f4a7aeaf5681f50','0c6df051de1cb5879e37b9ff77f7345fffbb8a35ea94850f8514e9b6cf9f3821');
INSERT INTO "audit" VALUES(41,1.79544064926944804197e+09,'run b044e80cd52b','users.register','secret','b044e80cd52b',NULL,'c18ce4c8d60ead1bedc9875d08287c68','{"blind":"e544dccaebb9dc2faa2337711a6a1e14","count":30,"first":0,"hashes":"8fd688cf2498c653203be61360cdc4e9ce98dead5062fad20c526f6eb3dfe7d5"}','0c6df051de1cb5879e37b9ff77f7345fffbb8a35ea94850f8514e9b6cf9f3821','4ea2700dac3e9fd0fb2b6f29a3988d60093cd81dd66779219428d2f640ebcc88');
INSERT INTO "audit" VALUES(42,1.79544064926944804197e+09,'run b044e80cd52b','round.open','secret','b044e80cd52b',0,'ea3b9e0caca7a57bc0120e35cd645187','{"attempt":0,"blind":"f14b731ea3b00d8d21f5ce01277d7159","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":0}','4ea2700dac3e9fd0fb2b6f29a3988d60093cd81dd66779219428d2f640ebcc88','7602130ac16a0859d8216c6c7a452af3190140e5b77ffd4060e12b7b3ea46fbf');
INSERT INTO "audit" VALUES(43,1.79544064926944804197e+09,'run b044e80cd52b','round.commit','secret','b044e80cd52b',0,'7e6fbcef5a342c3019552df3679c0bf5','{"attempt":0,"blind":"e90566605b6de2a55b44c8915d950405","checkpoint":"ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513","epsilon":0.1804475474266375,"noise_row":0,"nonce":"28282828282828282828282828282828","participant_count":0,"participants":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,1]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','7602130ac16a0859d8216c6c7a452af3190140e5b77ffd4060e12b7b3ea46fbf','78d49aaaa616454bc871d43980c106269f5d5299e1399118ffb77c47f51feb4a');
INSERT INTO "audit" VALUES(44,1.79544064926944804197e+09,'run b044e80cd52b','round.open','secret','b044e80cd52b',1,'a4b8348d80b675c61caf237e7e2dbf82','{"attempt":0,"blind":"eb547f513125d3d21ce71a2e8c5e17bf","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":1}','78d49aaaa616454bc871d43980c106269f5d5299e1399118ffb77c47f51feb4a','a3badff1bb660185c584713246757cb40282a84eddf7d73bf1cbb2b2cd8d122b');
INSERT INTO "audit" VALUES(45,1.79544064926944804197e+09,'run b044e80cd52b','round.commit','secret','b044e80cd52b',1,'8a239e282fb8ebb97065c17d2aebd49f','{"attempt":0,"blind":"0954c9aa80e22bd2a3c6aa6af34456c4","checkpoint":"e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc","epsilon":0.21978123329451935,"noise_row":1,"nonce":"29292929292929292929292929292929","participant_count":0,"participants":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,2]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','a3badff1bb660185c584713246757cb40282a84eddf7d73bf1cbb2b2cd8d122b','8459a952694acf57dd35c40e6bfa18b2fdd58d03a9f67594d1f30b4e92663474');
INSERT INTO "audit" VALUES(46,1.79544064926944804197e+09,'run b044e80cd52b','round.open','secret','b044e80cd52b',2,'0c12959abfca933ccca3970a6a7eae51','{"attempt":0,"blind":"1746bf73a7c928131045d133bc98f338","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":2}','8459a952694acf57dd35c40e6bfa18b2fdd58d03a9f67594d1f30b4e92663474','62ed97fdcd6eabbb96cbfaca898999d3368c45e1fc9520589ad6b90e2abac188');
INSERT INTO "audit" VALUES(47,1.79544064926944804197e+09,'run b044e80cd52b','round.void','secret','b044e80cd52b',2,'b767f29dd6a6554bdd7c92518abf1d61','{"attempt":0,"blind":"596af9ba2366a47fc9a1a6ac6505effa","reason":"too few","rejects":{},"reports":0}','62ed97fdcd6eabbb96cbfaca898999d3368c45e1fc9520589ad6b90e2abac188','4e2ba16bfd81a11e538730cce6d9fdaf373549e8163fb59ddd7804ebfa549c3c');
INSERT INTO "audit" VALUES(48,1.79544064926944804197e+09,'run b044e80cd52b','round.open','secret','b044e80cd52b',2,'1cfd9e5f7a0d09a5b50837365ab64fd2','{"attempt":1,"blind":"350034b4e5a3d02e2dd98c7055700f93","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":2}','4e2ba16bfd81a11e538730cce6d9fdaf373549e8163fb59ddd7804ebfa549c3c','602b2c7edf6bbebbe373eeed2eaac1d6c702bfcdcbb6513a5c358384dbc5a4ac');
CREATE TABLE charges (
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (population_id, "key"), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79544064759598970409e+09,1.79544064762064266207e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79544064768484115603e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'a507db8505b78e0a1dcc7b488670c4be',48,'602b2c7edf6bbebbe373eeed2eaac1d6c702bfcdcbb6513a5c358384dbc5a4ac',NULL);
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79544064740012788775e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1795440647.48772,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79544064755887508395e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79544064772059965137e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.7954406478164868355e+09,30.0);
INSERT INTO "leases" VALUES(6,'test',1,8,1.79544064937770295143e+09,30.0);
CREATE TABLE objects (
	hash VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_objects PRIMARY KEY (hash)
);
INSERT INTO "objects" VALUES('4ffa0b88f0b34255d85ae586583c01d19afc86db1389817e11a28ed66fdc0024',X'42DCB7BF47FC87B4E1109C5BE68011D9');
INSERT INTO "objects" VALUES('5c497b23c418db3c1731d0c0465d93b455fa8083aecfc9117fa6913e46de09b9',X'A50EAD7A7E8FE06CC3B19EC66FDA4BBF');
INSERT INTO "objects" VALUES('23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',X'7B2270726976616379223A207B2261646A6163656E6379223A20227A65726F5F6F7574227D2C202272756E223A207B22726F756E6473223A20347D7D');
INSERT INTO "objects" VALUES('167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39',X'7B226163637572616379223A302E357D');
INSERT INTO "objects" VALUES('e859e81c1d4243af25fee45b7d6e858763a03aefb985a3514071730195da7b8e',X'589D947831CBD34515A621ECC60084D1');
INSERT INTO "objects" VALUES('25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70',X'7B2270726976616379223A7B2261646A6163656E6379223A226164645F72656D6F7665227D2C2272756E223A7B22726F756E645F7365636F6E6473223A36302C22726F756E6473223A337D7D');
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "odometers" VALUES(1,0,40,X'0178016360C00D14A052301AA6129D0F131F8934006AC00061');
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(4,2,0,2,X'0178DA6366040000090005',X'01780163606060500062105000620002100041');
INSERT INTO "participations" VALUES(5,3,0,1,X'0178DA63030000070007',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(6,4,0,1,X'0178DA63010000050005',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(8,5,0,1,X'0178DA63050000060006',NULL);
INSERT INTO "participations" VALUES(10,6,0,0,X'0178DA030000000001',NULL);
INSERT INTO "participations" VALUES(11,6,1,0,X'0178DA030000000001',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "pledges" VALUES(4,0,40,X'0178016360606070006210700093A33429E10000419A0A01');
INSERT INTO "pledges" VALUES(4,40,10,X'017801636060607000621070009394D10064500281');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, bound_epsilon DOUBLE DEFAULT '0' NOT NULL, bound_delta DOUBLE DEFAULT '0' NOT NULL, ceiling_epsilon DOUBLE, ceiling_delta DOUBLE, reservation_seconds DOUBLE, two_persons BOOLEAN DEFAULT 0 NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'42DCB7BF47FC87B4E1109C5BE68011D9',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79544064702872776988e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'A50EAD7A7E8FE06CC3B19EC66FDA4BBF',0,'{"mu_squared":0.0,"sampled":[]}',1.79544064719594573969e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
INSERT INTO "populations" VALUES(3,'secret',8.0,1.0e-05,'add_remove','user',0,'open',X'589D947831CBD34515A621ECC60084D1',30,'{"mu_squared":0.0,"sampled":[]}',1.79544064782833576198e+09,'officer',1.00000000000000016653e-06,8.0,1.0e-05,NULL,NULL,NULL,0,'worst-case');
CREATE TABLE proposals (
	id VARCHAR(20) NOT NULL, 
	population_id INTEGER NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	proposed_at DOUBLE NOT NULL, 
	proposed_by VARCHAR(200) NOT NULL, 
	person VARCHAR(200) NOT NULL, 
	decided_at DOUBLE, 
	decided_by VARCHAR(200), 
	CONSTRAINT pk_proposals PRIMARY KEY (id), 
	CONSTRAINT fk_proposals_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79544064732055234914e+09,1.79544064733300900464e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79544064735579872137e+09,1.79544064736453914642e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79544064737794780732e+09,1.79544064738486909863e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79544064745083522798e+09,1.79544064745835232734e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79544064753734803198e+09,1.79544064755131673816e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79544064771234560019e+09,1.79544064771844744683e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79544064775286507608e+09,1.79544064775947856903e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79544064776776862149e+09,1.79544064778402161601e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.7954406478164868355e+09,NULL,NULL);
INSERT INTO "rounds" VALUES(10,6,0,0,0,'committed',NULL,0,0,0,'{"mu_squared":0.0,"sampled":[[0.05,2.0,1]]}',1.80447547426637489031e-01,'ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513','{}','{}','',1.79544064926944804197e+09,1.79544064926944804197e+09,'28282828282828282828282828282828');
INSERT INTO "rounds" VALUES(11,6,1,0,1,'committed',NULL,0,0,0,'{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}',2.19781233294519345866e-01,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc','{}','{}','',1.79544064926944804197e+09,1.79544064926944804197e+09,'29292929292929292929292929292929');
INSERT INTO "rounds" VALUES(12,6,2,0,2,'void',NULL,0,0,0,NULL,NULL,NULL,'{}','{}','too few',1.79544064926944804197e+09,1.79544064926944804197e+09,NULL);
INSERT INTO "rounds" VALUES(13,6,2,1,2,'open',X'0178DA030000000001',0,0,0,NULL,NULL,NULL,'{}','{}','',1.79544064926944804197e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'faf6d4985601',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','bb996e36a17a68e303f3d0939caa7ab6075440358b13c068ed5debd3f12faadd',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79544064726464819908e+09,'test',1.79544064740012788775e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'6f1c1924251c',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','30de239430ee86df7bd29976e8101a4ab22a7bb7509e9cc50b9e57c0eeb40d61',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.7954406474303154945e+09,'test',1795440647.48772,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'12093a1ca18d',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','dc493d67e85cb32e0521e32b1f1c6f8357e923d17d492b4009cbb96e55e0175f',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79544064751351523396e+09,'test',1.79544064755887508395e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'c08bdd3c1e0f',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','f31334faf6f83185e1692ca5874efa6ae5affcd4e2058116b62a9b6a12bbdbb7',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79544064769624590873e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'89aa68390415',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','460f0076c0266b41564ffc9870020557755065316fa163a0044e64f53041f02c',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79544064773999762539e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(6,'b044e80cd52b',3,'{"privacy":{"adjacency":"add_remove"},"run":{"round_seconds":60,"rounds":3}}','25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70',4,'{"mu_squared":0.0,"sampled":[[0.05,2.0,3]]}','{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}','secure','a72945f90391717a98e25f4a5493305eba131ad8d5ae9d356fdf86eaf38c16a8',0,'running',NULL,'',2,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc',1.79544064926944804197e+09,'test',NULL,'{"leak":1e-07,"mu_squared":0.007437336250795522}',NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, populations TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('0bfef862e076','page','7a0d131bbb76feb7dce76181a663aa3e268eb3ecf82e69c1eb8fb44a45acf10c','read',1.79544064722918677331e+09,'officer',NULL,1.79544064723936581612e+09,NULL);
INSERT INTO "tokens" VALUES('c1e8cf4e83c3','office','3853143f53b6d3842674fbeb7b7b5098cba78453ce841284c323d331719b5325','read admin',1.79544064723602390292e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'6C267F08996FB27F7785EA5D6AB32A3F97637400D7A362402673514D677B3B177208F5B9F6F4BBD4483D33F2020A7CDEDF69083B10B43A68E65291CD4AE36E44E9AD53993BF55D03B23572C12742F24732E57475503617FDAC60B352291CCF891A28E9D6B2BBC824BC22135D8E1E8A12DD2EC542AF3C420CF186D1F1F57BA583D66E26AADCCF58F26AD7C9218B6FF03D992977231418F2825AC23DDC69BD8B80BFBB5AD70188F943FA6CAF90075A883F6D110F451AA9C39EA6ED8B5EB97D83AC8D5365E4BAE2796C91FCD575B51A3CC7E887DEADC02CB5959BCA79D7506A1862306BBD687815F997051B0D7FCFBDE5767658C17A62A1E07B15C49029163E746FB1A08523E88E3B62440EBE948F75C85C70CFEDC7779516C43C9F2B8CA38D2B4D5B04A46D808831350A6303918E67F33D210F662642630531B54A7A5A8AE5405B');
INSERT INTO "users" VALUES(1,40,10,X'935CB775079630873DD78B5A9E6F7E39398651987F367C896A9D4879DDD1659B8654753804D883A9B5A77A61405BC04F3DE46A2E9D49D988C455CFE4349A6BF712E878182CE2EAD742E37C144CC001F1');
INSERT INTO "users" VALUES(3,0,30,X'1911C9FA806B14C7308F3074458BA56EB3F9B1169D89F35399CEF883891EE795DE64BA77CA2450D3A250250C6B10B990D06445575738CF59BA5FE056B600E51AC934F2929C663C8F209E48B4DADEA47F0AE977FE7ECBFA7A701A7BF0DC5D06339EF84C123BF6C28133A431626F2AC55BA00F0F5A87F2D265A5DCEEB1DB70BF561A51DD618229D3B1DC9A99B10077731CB72F679306461CC536EF3A88DBC0E0F4A57B125AA2976612F443734FB40A15CE7B8C125E64B0773E9E19AD432BE8A8021638CF2A511CCD1A3C43720079BE7937A90012745914CDC2E3712C6FEE560A86CAEE8549EB6CC0A20389746588ACEFFF');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE INDEX ix_audit_tokens ON audit (id) WHERE action IN ('token.create', 'token.revoke');
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER objects_update BEFORE UPDATE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
CREATE TRIGGER objects_delete BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
COMMIT;
